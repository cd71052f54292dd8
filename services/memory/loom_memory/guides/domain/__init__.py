"""Rules of guides."""
