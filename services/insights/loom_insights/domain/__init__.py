"""Rules of the ledger: what a row is and which spans may be read."""
