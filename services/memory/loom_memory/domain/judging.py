"""What a model is asked about a conflict, and what of its answer counts."""

from typing import Final

from loom_common.json_text import parse_object
from loom_common.times import format_time
from loom_memory.domain.conflict import Resolution
from loom_memory.domain.fencing import fenced
from loom_memory.domain.likeness import wording
from loom_memory.domain.memory import Memory
from loom_memory.domain.supersession import window_of

MAX_VALUE_CHARS: Final = 2_000
_MAX_WHY_CHARS: Final = 300


def question(newer: Memory, older: Memory) -> str:
    """Returns what a model is asked about two memories."""
    told = [
        f"{name}, told of {format_time(window_of(memory).since)}:\n{fenced(name, memory.content.value)}"
        for name, memory in (("newer", newer), ("older", older))
    ]
    return "\n\n".join(told)


def answer(text: str, newer: Memory, older: Memory) -> tuple[Resolution, str, str] | None:
    """Returns the resolution of an answer, its merged value and its reason; None where it says nothing that counts.

    A merged value may hold no number that neither memory holds.
    """
    told = parse_object(text).value or {}
    try:
        resolution = Resolution(str(told.get("resolution", "")).strip().lower())
    except ValueError:
        return None
    value, why = told.get("value"), told.get("why")
    value = value.strip() if isinstance(value, str) and resolution is Resolution.MERGE else ""
    why = why.strip()[:_MAX_WHY_CHARS] if isinstance(why, str) else ""
    if resolution is Resolution.MERGE:
        known = wording(newer.content.value).numbers | wording(older.content.value).numbers
        if not value or len(value) > MAX_VALUE_CHARS or set(wording(value).numbers) - set(known):
            return None
    return resolution, value, why
