"""The tables of identity, one repository each."""
