"""Sends what a file of another system holds: memories as an import, conversations turn by turn."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from loom_cli.importers.appending import Taken, append_requests, outcome_of
from loom_cli.importers.converting import Converted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom_client import Imported

_REFUSED: Final = "INVALID_ARGUMENT"
# Errors of a call that are of what it carries.
_OF_ONE: Final = frozenset({"PAYLOAD_TOO_LARGE", "INVALID_ARGUMENT", "MALFORMED_REQUEST"})


class Target(Protocol):
    """What is asked of `loom_client.Loom`."""

    def import_(
        self, lines: "Iterable[bytes]", *, namespace: str | None, dry_run: bool, skip_existing: bool
    ) -> "Iterator[Imported]":
        """Stores lines of an import."""
        ...

    def call(self, op: str, body: "Mapping[str, Any] | None" = None, /) -> dict[str, Any]:
        """Calls an operation by its name."""
        ...


@dataclass(frozen=True, slots=True)
class How:
    """How a file is stored."""

    namespace: str | None
    user: str
    dry_run: bool
    skip_existing: bool


@dataclass(frozen=True, slots=True)
class NotTaken:
    """One thing that the server did not take."""

    where: str
    reason: str
    message: str


@dataclass(slots=True)
class Sent:
    """What was done so far.

    Attributes:
        memories: Memories that are answered.
        conversations: Conversations that are answered whole.
        stored: Memories and messages that were stored, or would be in a dry run.
        unchanged: Those that were there already.
        refused: Those that were not taken.
    """

    memories: int = 0
    conversations: int = 0
    stored: int = 0
    unchanged: int = 0
    refused: list[NotTaken] = field(default_factory=list)


def send(loom: Target, converted: Converted, how: How, sent: Sent, note: Callable[[Sent], None]) -> None:
    """Sends what `sent` does not count yet, and counts it there.

    Args:
        loom: Where it goes.
        converted: What there is to send.
        how: How to store it.
        sent: What earlier runs did; the same object grows.
        note: Called whenever it grew.

    Raises:
        LoomError: A call was refused as a whole, or failed; what `sent` counts is stored.
    """
    _memories(loom, converted, how, sent, note)
    _conversations(loom, converted, how, sent, note)


def _memories(loom: Target, converted: Converted, how: How, sent: Sent, note: Callable[[Sent], None]) -> None:
    before = Sent(sent.memories, sent.conversations, sent.stored, sent.unchanged, list(sent.refused))
    lines = converted.memory_lines(before.memories)
    asked: dict[str, Any] = {"namespace": how.namespace, "dry_run": how.dry_run, "skip_existing": how.skip_existing}
    for done in loom.import_(lines, **asked):
        sent.memories = before.memories + done.lines
        sent.stored = before.stored + done.stored
        sent.unchanged = before.unchanged + done.unchanged
        sent.refused = before.refused + [
            NotTaken(converted.wheres[before.memories + one.line - 1], one.reason, one.message) for one in done.refused
        ]
        note(sent)


def _conversations(loom: Target, converted: Converted, how: How, sent: Sent, note: Callable[[Sent], None]) -> None:
    for held in converted.held_conversations(sent.conversations):
        # Counted whole: one that a run stopped amidst is sent again, which changes nothing.
        stored, unchanged, refused = 0, 0, list[NotTaken]()
        for request in append_requests(held, how.namespace, how.user):
            if how.dry_run:
                stored += len(request["turns"])
                continue
            taken = _append(loom, request)
            stored += taken.stored
            unchanged += taken.unchanged
            refused += [NotTaken(f"{held.where}, message {turn}", _REFUSED, why) for turn, why in taken.refused]
        sent.stored += stored
        sent.unchanged += unchanged
        sent.refused += refused
        sent.conversations += 1
        note(sent)


def _append(loom: Target, request: dict[str, Any]) -> Taken:
    from loom_client import LoomError  # here: `loom --help` need not wait for it

    try:
        return outcome_of(loom.call("conversation.append", request))
    except LoomError as error:
        if error.reason not in _OF_ONE:
            raise
        turns = request["turns"]
        if len(turns) == 1:
            return Taken(0, 0, ((turns[0]["turn_id"], error.message),))
    # One that cannot be read, such as half a surrogate, makes the whole body unreadable: each is sent by itself.
    each = [_append(loom, {**request, "turns": [turn]}) for turn in turns]
    refused = tuple(one for taken in each for one in taken.refused)
    return Taken(sum(taken.stored for taken in each), sum(taken.unchanged for taken in each), refused)
