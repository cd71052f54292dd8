"""Rows of `memory_embeddings` that stand for a key, and the rule of `domain.keys` as the database reads it."""

from typing import Final

from loom_memory.domain import keys

VALUE_ROW: Final = f"chunk < {keys.FIRST_KEY_CHUNK}"
"""Keeps chunks of values, and stubs; what a version has of these alone says whether it has its vectors."""

KEY_ROW: Final = f"chunk >= {keys.FIRST_KEY_CHUNK}"


def _literal(pattern: str) -> str:
    return "'" + pattern.replace("\\", "\\\\") + "'"


_FOUND: Final = f"extractAll(memory_key, {_literal(keys.TOKENS)})"

SAYS_WORDS: Final = f"""(arrayCount(token -> match(token, {_literal(keys.WORD)}), {_FOUND})
    > arrayCount(token -> match(token, {_literal(keys.NUMBERED)}), {_FOUND}))"""
"""Whether `domain.keys.key_text` of `memory_key` is not empty."""

KEY_TEXT: Final = f"""trim(replaceRegexpAll(
    replaceRegexpAll(memory_key, {_literal(keys.CAMEL)}, {_literal(keys.CAMEL_APART)}), {_literal(keys.GAPS)}, ' '))"""
"""What it returns then."""
