"""Which memories stand each for itself, whatever others say."""

from typing import Final

from loom_memory.domain.memory import DEFAULT_KIND, Content

APART: Final = frozenset({"chunk", "turn", "message", "event", "episode", "document", "log", "code"})
"""Kinds whose rows stand each for itself: what was said or happened twice was said or happened twice.

Source: chosen. Imports of conversations use the first three.
"""


def stands_apart(content: Content) -> bool:
    """Says whether a row stands for itself: by its kind, or as a turn that nobody made a fact of."""
    return content.kind in APART or (bool(content.speaker) and content.kind == DEFAULT_KIND)
