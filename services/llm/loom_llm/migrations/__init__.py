"""The tables of llm, as numbered SQL files."""
