"""How much of a memory's text a search shows."""

from enum import StrEnum
from typing import Final

from loom_memory.domain.memory import Content
from loom_memory.domain.units import unit_of

EXCERPT_CHARS: Final = 200

# Half a decision is none: these are shown as stored.
_WHOLE_KINDS: Final = frozenset({"decision", "constraint"})


class Bodies(StrEnum):
    """How much of each text is shown."""

    EXCERPT = "excerpt"
    FULL = "full"
    UNIT = "unit"
    NONE = "none"


def shown_value(content: Content, bodies: Bodies, query: str = "") -> tuple[str, bool]:
    """Returns the text to show, and whether it is cut short; `query` says which part of a long one is its unit."""
    is_whole = bodies is Bodies.EXCERPT and content.kind in _WHOLE_KINDS
    return shown_text(content.value, Bodies.FULL if is_whole else bodies, query)


def shown_text(value: str, bodies: Bodies, query: str = "") -> tuple[str, bool]:
    """Returns as much of a text as is shown, and whether it is cut short."""
    if bodies is Bodies.NONE:
        return "", bool(value)
    if bodies is Bodies.UNIT:
        return unit_of(value, query)
    if bodies is Bodies.FULL or len(value) <= EXCERPT_CHARS:
        return value, False
    return value[:EXCERPT_CHARS], True
