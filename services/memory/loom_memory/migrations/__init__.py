"""The tables of memory, as numbered SQL files."""
