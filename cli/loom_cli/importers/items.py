"""What a file of another system holds, in the terms of this one."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

_MAX_ID_CHARS: Final = 200
_MAX_TAGS: Final = 32
_MAX_TAG_CHARS: Final = 64
_DIGEST_CHARS: Final = 32


class BadFile(ValueError):
    """States that a file is not of the kind that it was said to be, or is not whole; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One memory.

    Attributes:
        where: Where it stands in the file, for messages about it.
        record: Its fields, as a line of an import has them; empty ones may be there.
    """

    where: str
    record: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation.

    Attributes:
        turn_id: Its id, unique within the conversation.
        role: `user` or `assistant`.
        text: What was said.
        at: When, RFC 3339; empty where the file does not tell.
    """

    turn_id: str
    role: str
    text: str
    at: str = ""


@dataclass(frozen=True, slots=True)
class ConversationItem:
    """One conversation, its turns in order.

    Attributes:
        where: Where it stands in the file.
        conversation_id: Its id, the same on each import of the file.
        title: Its title; may be empty.
        turns: At least one.
        agent: Agent that took part, where the file names one.
    """

    where: str
    conversation_id: str
    title: str
    turns: tuple[Turn, ...]
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that should have been taken and could not be.

    Attributes:
        where: Where it stands in the file.
        why: What is wrong with it.
    """

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that this system has no place for.

    Attributes:
        where: Where it stands in the file.
        why: Why it is left out; the same words for all of a sort, so that they can be counted.
    """

    where: str
    why: str


Item: TypeAlias = MemoryItem | ConversationItem | Refused | Skipped


def key_of(prefix: str, *names: str) -> str:
    """Returns the key of something by the names that it has in its own system: the same ones, the same key."""
    joined = "-".join(names)
    if len(joined) <= _MAX_ID_CHARS and joined.isprintable() and not any(map(str.isspace, joined)):
        return f"{prefix}-{joined}"
    told = "\x1f".join(names).encode("utf-8", "surrogatepass")
    return f"{prefix}-{hashlib.sha256(told).hexdigest()[:_DIGEST_CHARS]}"


def tags_of(*names: str) -> list[str]:
    """Returns labels without empty and repeated ones, each and all within what a memory may have."""
    kept = dict.fromkeys(name.strip()[:_MAX_TAG_CHARS].strip() for name in names)
    return [name for name in kept if name][:_MAX_TAGS]


def turns_of(told: Iterable[tuple[str, Turn | Item]]) -> tuple[tuple[Turn, ...], list[Item]]:
    """Returns the turns of a conversation, each once, and what its other messages are."""
    turns: dict[str, Turn] = {}
    others: list[Item] = []
    for where, one in told:
        if not isinstance(one, Turn):
            others.append(one)
        elif one.turn_id in turns:
            others.append(Skipped(where, "a message that is there twice"))
        else:
            turns[one.turn_id] = one
    return tuple(turns.values()), others


def turn_memory(kind: str, conversation: ConversationItem, turn: Turn, place: int) -> MemoryItem:
    """Returns a turn as a memory of its own, filed under its conversation as its session."""
    return MemoryItem(
        f"{conversation.where}, message {place}",
        {
            "key": key_of(kind, conversation.conversation_id, turn.turn_id),
            "value": turn.text,
            "kind": "message",
            "session_id": conversation.conversation_id,
            "agent": conversation.agent,
            "speaker": turn.role,
            "event_time": turn.at,
            "tags": tags_of(kind),
            "source": f"{kind}: {conversation.title}"[:1_000] if conversation.title else kind,
        },
    )
