"""Briefs of sessions: what a session leaves behind for the next one, and how one is made by rule."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

import regex

from loom_memory.domain.memory import Identity
from loom_memory.sessions.domain.working import Session

MAX_BYTES: Final = 8_192
"""Longest brief, in UTF-8. Source: chosen; some 2,000 tokens, as much as a whole context pack by default."""

# Source: chosen; a line that is longer is read by nobody, and the ends of a talk say where it stopped.
_LINE_CHARS: Final = 320
_MOST_MEMORIES: Final = 40
_MOST_TURNS: Final = 6
_CUT: Final = " [...]"
# Kinds that lead, for whoever goes on must not decide them anew.
_LEADING: Final = ("decision", "constraint")
_BREAKS: Final = regex.compile(r"[\s\u2028\u2029\x85\p{Cc}]+")


class Origin(StrEnum):
    """Where a brief comes from."""

    GIVEN = "given"
    """A caller wrote it."""
    COMPOSED = "composed"
    """It was made by rule."""
    MODEL = "model"
    """A language model wrote it."""


@dataclass(frozen=True, slots=True)
class SessionBrief:
    """One version of a session's brief.

    Attributes:
        version: 1, 2, 3 and so on.
        model: Model that wrote it; empty where none did.
        memories: Memories that it was made of.
        turns: Number of turns that it was made of.
    """

    session: Session
    agent: str
    text: str
    version: int
    origin: Origin
    model: str
    memories: tuple[Identity, ...]
    turns: int
    actor: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Remembered:
    """One memory of the session."""

    identity: Identity
    kind: str
    value: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Said:
    """One turn of the session's conversations."""

    who: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Left:
    """What a session left, the oldest first."""

    memories: Sequence[Remembered] = field(default=())
    turns: Sequence[Said] = field(default=())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to make a brief of."""
        return not self.memories and not self.turns


@dataclass(frozen=True, slots=True)
class Composed:
    """A brief that was made by rule, and what stands in it."""

    text: str
    memories: tuple[Identity, ...]
    turns: int


def compose(left: Left) -> Composed:
    """Returns the brief of what a session left: the same for the same, and never longer than a brief may be.

    What was decided comes first, then the other memories, then how the conversations ended. Where there is not enough
    room, the newest of each stay.
    """
    lines = [_headline(left)]
    room = MAX_BYTES - _bytes(lines[0])
    kept: list[Identity] = []
    leading = [one for one in left.memories if one.kind in _LEADING]
    others = [one for one in left.memories if one.kind not in _LEADING]
    for title, group in (("Decided:", leading), ("Noted:", others)):
        chosen, room = _chosen([f"- {_line(one.value)}" for one in group], title, room, _MOST_MEMORIES)
        kept += [group[place].identity for place, _ in chosen]
        lines += [title, *(line for _, line in chosen)] if chosen else []
    said, _ = _chosen([f"- {_line(f'{one.who}: {one.text}')}" for one in left.turns], "Last said:", room, _MOST_TURNS)
    lines += ["Last said:", *(line for _, line in said)] if said else []
    return Composed("\n".join(lines), tuple(kept), len(said))


def cut_to_bytes(text: str, most: int) -> str:
    """Returns the longest beginning of a text that has at most so many bytes; never half a character."""
    return text.encode("utf-8", "ignore")[:most].decode("utf-8", "ignore")


def _headline(left: Left) -> str:
    times = sorted([one.at for one in left.memories] + [one.at for one in left.turns])
    span = f"{times[0]:%Y-%m-%d %H:%M} to {times[-1]:%Y-%m-%d %H:%M} UTC" if times else "no time"
    return f"Memories: {len(left.memories)}, turns: {len(left.turns)}, {span}."


def _chosen(lines: Sequence[str], title: str, room: int, most: int) -> tuple[list[tuple[int, str]], int]:
    """Returns the newest of some lines that fit, each with its place, in their order, and the room that is left."""
    chosen: list[tuple[int, str]] = []
    seen: set[str] = set()
    left = room - _bytes(title) - 1
    for place in range(len(lines) - 1, -1, -1):
        line = lines[place]
        if line in seen:
            continue
        needs = _bytes(line) + 1
        if len(chosen) >= most or needs > left:
            break
        seen.add(line)
        left -= needs
        chosen.append((place, line))
    return (list(reversed(chosen)), left) if chosen else ([], room)


def _line(text: str) -> str:
    line = str(_BREAKS.sub(" ", text)).strip()
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - len(_CUT)].rstrip() + _CUT


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
