"""Conversations in the form that `conversation.append` takes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from loom_cli.importers.converting import HeldConversation

# Turns and characters of one call. Source: chosen; a body over HTTP has at most 4 MiB, and a character four bytes.
_MAX_TURNS: Final = 100
_MAX_CHARS: Final = 500_000
_MAX_NAME_CHARS: Final = 256


@dataclass(frozen=True, slots=True)
class Taken:
    """What one call did.

    Attributes:
        stored: Turns that are new.
        unchanged: Turns that were there.
        refused: Turns that were not taken, each with the reason.
    """

    stored: int
    unchanged: int
    refused: tuple[tuple[str, str], ...] = ()


def append_requests(held: HeldConversation, namespace: str | None, user: str) -> Iterator[dict[str, Any]]:
    """Yields the requests that carry a conversation, in order."""
    batch: list[dict[str, str]] = []
    size = 0
    for turn in held.turns:
        if batch and (len(batch) == _MAX_TURNS or size + len(turn["text"]) > _MAX_CHARS):
            yield _request(held, namespace, user, batch)
            batch, size = [], 0
        batch.append(_turn(turn, held, user))
        size += len(turn["text"])
    if batch:
        yield _request(held, namespace, user, batch)


def outcome_of(answer: Mapping[str, Any]) -> Taken:
    """Returns what a call did."""
    results = answer["results"]
    statuses = [result["status"] for result in results]
    refused = [(result["turn_id"], result["error"]) for result in results if result["status"] == "refused"]
    return Taken(statuses.count("stored"), statuses.count("repeated"), tuple(refused))


def _request(held: HeldConversation, namespace: str | None, user: str, turns: list[dict[str, str]]) -> dict[str, Any]:
    told = {
        "conversation_id": held.conversation_id,
        "title": held.title[:_MAX_NAME_CHARS],
        "user_id": user,
        "agent": held.agent[:_MAX_NAME_CHARS],
        "namespace": namespace,
    }
    return {**{name: value for name, value in told.items() if value}, "turns": turns}


def _turn(turn: Mapping[str, str], held: HeldConversation, user: str) -> dict[str, str]:
    author = (held.agent if turn["role"] == "assistant" else user) or turn["role"]
    author = author[:_MAX_NAME_CHARS]
    return {**{name: value for name, value in turn.items() if value}, "author": author}
