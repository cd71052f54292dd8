"""The tables of embedding, as numbered SQL files."""
