"""Notes that a model makes of several memories, and how they become memories themselves."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from loom_common.json_text import parse_object
from loom_common.times import format_time
from loom_memory.domain.memory import Content, Identity

CONSOLIDATED: Final = "consolidated"
"""Label of a memory that was made of others; each of these has a label `src:<key>` there."""

_MAX_SOURCES: Final = 31
_MAX_TAG_CHARS: Final = 64
_MAX_NOTES: Final = 5
_MAX_CHARS: Final = 4_000
_LINE_CHARS: Final = 1_000
_KEY_BYTES: Final = 15


class Grouping(StrEnum):
    """Which memories are looked at together."""

    SESSION = "session"
    """Those of a session that has ended."""
    DAY = "day"
    """Those of a user that were written on a day that is over."""


@dataclass(frozen=True, slots=True)
class Source:
    """One memory that notes are made of."""

    identity: Identity
    value: str
    speaker: str
    at: datetime
    version: int
    actor: str


@dataclass(frozen=True, slots=True)
class Group:
    """Memories that are looked at together; `name` is the session or the day."""

    user_id: str
    session_id: str
    name: str
    newest: int
    count: int


@dataclass(frozen=True, slots=True)
class Note:
    """One note and what it rests on."""

    text: str
    sources: tuple[Source, ...]


def sources_text(sources: Sequence[Source]) -> str:
    """Returns memories as a prompt lists them."""
    return "\n".join(
        f"[{number}] ({format_time(source.at)}) {f'{source.speaker}: ' if source.speaker else ''}"
        f"{source.value[:_LINE_CHARS]}"
        for number, source in enumerate(sources, start=1)
    )


def read_notes(text: str, sources: Sequence[Source], least_sources: int) -> list[Note] | None:
    """Returns the notes of a model's answer that rest on enough memories; None where it cannot be read."""
    parsed = parse_object(text)
    held = None if parsed.value is None else parsed.value.get("notes")
    if not isinstance(held, list):
        return None
    notes = []
    for entry in held[:_MAX_NOTES]:
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
            continue
        said = " ".join(str(entry["text"]).split())[:_MAX_CHARS]
        numbers = entry.get("sources")
        places = (
            [one for one in numbers if isinstance(one, int) and not isinstance(one, bool)]
            if isinstance(numbers, list)
            else []
        )
        named = tuple(sources[place - 1] for place in dict.fromkeys(places) if 1 <= place <= len(sources))
        if said and len(named) >= least_sources:
            notes.append(Note(said, named))
    return notes


def note_content(note: Note, kind: str) -> Content:
    """Returns what is stored of a note: it says of itself that it was made of others, and of which."""
    marks = [f"src:{source.identity.key}" for source in note.sources]
    fitting = [mark for mark in marks if len(mark) <= _MAX_TAG_CHARS][:_MAX_SOURCES]
    return Content(
        value=note.text,
        kind=kind,
        tags=(CONSOLIDATED, *fitting),
        event_time=max(source.at for source in note.sources),
    )


def note_key(prefix: str, *told: str) -> str:
    """Returns the key of a note, the same whenever it is made of the same."""
    return f"{prefix}-{hashlib.blake2b(json.dumps(told).encode(), digest_size=_KEY_BYTES).hexdigest()}"
