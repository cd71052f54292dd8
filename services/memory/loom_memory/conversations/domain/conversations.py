"""Conversations and their turns."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

import regex

from loom_memory.domain.analyzer import QueryTerm, analyze_text
from loom_memory.domain.scoring import score

PLANE: Final = "turn"
"""Name of the plane among vectors."""

MIN_SIMILARITY: Final = 0.30
"""Cosine from which a turn answers, never below the model's noise unless it is set. Source: the design."""

TITLE_CHARS: Final = 80
"""Longest title. Source: chosen, one line."""

PASSAGE_CHARS: Final = 900
"""Characters of one passage of a turn. Source: chosen; some 200 tokens, which every shipped model reads whole."""

_OVERLAP_CHARS: Final = 120
_ID_BYTES: Final = 15
# Source: chosen, as for procedures: a turn that holds half of the words of a question is about it.
_SHARE: Final = 0.5
_SENTENCE_END: Final = regex.compile(r"(?<=[.!?。！？])\s+|\n+")
_SPACE: Final = regex.compile(r"\s+")


class TitledBy(StrEnum):
    """Where a conversation's title comes from. A caller's own is never replaced, and a model's only by a caller's."""

    NOBODY = ""
    FIRST_TURN = "first_turn"
    MODEL = "model"
    CALLER = "caller"


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation as it is now.

    Attributes:
        life: Number of its life: what was said before it was deleted belongs to an earlier one.
        turns: Number of its turns.
        actor: Who added to it last.
        row_version: Number of the row that it was read from; 0 for none yet.
    """

    id: str
    user_id: str
    session_id: str
    agent: str
    title: str
    titled_by: TitledBy
    turns: int
    actor: str
    created_at: datetime
    updated_at: datetime
    life: int
    is_removed: bool = False
    row_version: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one participant said.

    Attributes:
        index: Place in the conversation, from 1, in the order in which turns were added.
        at: When it was said.
        actor: Who added it.
    """

    conversation_id: str
    id: str
    index: int
    author: str
    role: str
    text: str
    at: datetime
    user_id: str
    session_id: str
    agent: str
    actor: str
    created_at: datetime
    life: int


@dataclass(frozen=True, slots=True)
class TurnHit:
    """A turn that answers.

    Attributes:
        similarity: Cosine of its nearest passage; None where it has no vector.
    """

    conversation_id: str
    title: str
    turn_id: str
    turn_index: int
    author: str
    role: str
    text: str
    at: datetime
    score: float
    similarity: float | None


def derived_turn_id(conversation_id: str, author: str, role: str, at: str, text: str) -> str:
    """Returns the identifier of a turn that names none: the same words of the same moment are the same turn."""
    told = json.dumps([conversation_id, author, role, at, text]).encode("utf-8", "surrogatepass")
    return f"t-{hashlib.blake2b(told, digest_size=_ID_BYTES).hexdigest()}"


def vector_id(conversation_id: str, turn_id: str, passage: int) -> str:
    """Returns the name of a passage's vector."""
    return json.dumps([conversation_id, turn_id, passage])


def vectors_of(conversation_id: str) -> str:
    """Returns what the names of all vectors of a conversation begin with, and of no other one."""
    return f"{json.dumps([conversation_id])[:-1]},"


def turn_of_vector(name: str) -> tuple[str, str]:
    """Returns the conversation and the turn that a passage's vector is of."""
    conversation_id, turn_id, _ = json.loads(name)
    return conversation_id, turn_id


def passages(text: str) -> list[str]:
    """Returns a turn in overlapping passages, so that all of it has vectors; one for most turns."""
    if len(text) <= PASSAGE_CHARS:
        return [text]
    found, start = [], 0
    while start < len(text):
        end = min(len(text), start + PASSAGE_CHARS)
        if end < len(text) and (space := text.rfind(" ", start + PASSAGE_CHARS // 2, end)) > 0:
            end = space
        found.append(text[start:end])
        if end == len(text):
            break
        start = end - _OVERLAP_CHARS
    return found


def title_of(text: str) -> str:
    """Returns the beginning of what was said first, as a title: its first sentence, cut at a word."""
    line: str = _SPACE.sub(" ", _SENTENCE_END.split(text.strip(), maxsplit=1)[0]).strip()
    if len(line) <= TITLE_CHARS:
        return line
    cut = line[: TITLE_CHARS - 1]
    word = cut.rfind(" ")
    return f"{cut[:word] if word > TITLE_CHARS // 2 else cut}…"


def share_of(terms: Sequence[QueryTerm], text: str) -> float:
    """Returns the share of a query's terms that a text holds, by weight."""
    held = set(analyze_text(text).term_ids)
    total = sum(term.weight for term in terms)
    return sum(term.weight for term in terms if term.term_id in held) / total if total else 0.0


def answers(similarity: float | None, share: float, *, floor: float) -> bool:
    """Says whether a turn answers: near enough in meaning, or holding enough of the words."""
    return (similarity is not None and similarity >= floor) or share >= _SHARE


def shown_score(similarity: float | None, share: float, *, noise_floor: float) -> float:
    """Returns the shown score, 0 to 1, on the scale of memories."""
    return score(similarity, share, noise_floor=noise_floor)
