"""One conversation that waits for its facts, and where it is on its way."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from loom_common.call import Scope

MAX_KEYS: Final = 1_000
"""Most keys that a row tells of."""

MAX_ATTEMPTS: Final = 8
"""Source: chosen; with the waits between them a provider may be away for an hour before work is given up."""

_FIRST_WAIT_S: Final = 30.0
_LONGEST_WAIT_S: Final = 1800.0


class State(StrEnum):
    """Where an extraction is."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """It ended with an error that its caller was told; the same call sent again tries it again."""
    DEAD = "dead"
    """It is not tried any more until somebody asks for it."""


class Reason(StrEnum):
    """Why an extraction stored less than was asked for."""

    DEFERRED = "deferred"
    ALREADY_DONE = "already_done"
    NO_FACTS = "no_facts"
    NO_MODEL = "no_model"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    UNREADABLE = "unreadable"


MESSAGES: Final = {
    Reason.DEFERRED: "The facts are extracted in the background; memory.extraction tells what became of them.",
    Reason.ALREADY_DONE: "The same messages were given before; nothing was added.",
    Reason.NO_FACTS: "Nothing was stored: the messages hold no fact that stays useful. Use verbatim to keep them as "
    "they are.",
    Reason.NO_MODEL: "No model is configured, so nothing was extracted; the messages were stored as they are. Set "
    "OPENAI_API_KEY or ANTHROPIC_API_KEY to have facts extracted.",
    Reason.UNCHANGED: "Nothing was stored: everything was known already.",
    Reason.REFUSED: "Nothing was stored: everything was refused; the results say why.",
    Reason.UNREADABLE: "The model's answers could not be read, also after asking again. What could be read was stored.",
}


@dataclass(frozen=True, slots=True)
class Counts:
    """What came of an extraction so far."""

    extracted: int = 0
    stored: int = 0
    unchanged: int = 0
    refused: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.extracted + other.extracted,
            self.stored + other.stored,
            self.unchanged + other.unchanged,
            self.refused + other.refused,
        )


@dataclass(frozen=True, slots=True)
class Extraction:
    """One row of the queue.

    Attributes:
        enqueued_by: Who asked: `human:` or `process:` and the subject of the token. Its calls to models are for that.
        payload: The messages, as JSON; empty once it is done.
        held: Whether a `running` row waits for the end of a hold, and nobody works on it.
        done_windows: Parts of the conversation whose facts are stored.
        version: Number of this version of the row.
    """

    scope: Scope
    id: str
    enqueued_by: str
    payload: str
    created_at: datetime
    updated_at: datetime
    due_at: datetime
    user_id: str = ""
    session_id: str = ""
    agent: str = ""
    capture: str = "conversation"
    tags: tuple[str, ...] = ()
    source: str = ""
    state: State = State.PENDING
    held: bool = False
    attempts: int = 0
    leased_until: datetime | None = None
    done_windows: tuple[int, ...] = ()
    counts: Counts = Counts()
    stored_keys: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    model: str = ""
    version: int = 0

    @property
    def shown_state(self) -> str:
        """The state as callers see it."""
        return "held" if self.held else self.state.value

    def is_worked_on(self, now: datetime) -> bool:
        """Says whether somebody has it under a lease."""
        return self.state is State.RUNNING and self.leased_until is not None and self.leased_until > now

    def leased(self, now: datetime, lease_s: float) -> "Extraction":
        """Returns the row of its next attempt, which counts from here on, however it ends."""
        return replace(
            self,
            state=State.RUNNING,
            held=False,
            attempts=self.attempts + 1,
            leased_until=now + timedelta(seconds=lease_s),
            updated_at=now,
        )

    def progressed(self, window: int, counts: Counts, keys: Sequence[str], now: datetime) -> "Extraction":
        """Returns the row after one more part of the conversation is stored."""
        known = dict.fromkeys([*self.stored_keys, *keys])
        return replace(
            self,
            done_windows=(*self.done_windows, window),
            counts=self.counts + counts,
            stored_keys=tuple(known)[:MAX_KEYS],
            updated_at=now,
        )

    def finished(self, reason: str, message: str, model: str, now: datetime) -> "Extraction":
        """Returns the row of its end; nothing of the messages stays in it."""
        return replace(
            self,
            state=State.DONE,
            held=False,
            payload="",
            leased_until=None,
            reason=reason,
            message=message,
            model=model,
            updated_at=now,
        )

    def failed(
        self, reason: str, message: str, now: datetime, *, retry_after_s: float | None, most: int = MAX_ATTEMPTS
    ) -> "Extraction":
        """Returns the row after a failed attempt: due again after a while, or dead after the last one."""
        is_dead = self.attempts >= most
        wait_s = max(retry_wait_s(self.attempts), min(retry_after_s or 0.0, _LONGEST_WAIT_S))
        return replace(
            self,
            state=State.DEAD if is_dead else State.PENDING,
            held=False,
            leased_until=None,
            due_at=now + timedelta(seconds=wait_s),
            reason=reason,
            message=message[:1000],
            updated_at=now,
        )

    def on_hold(self, reason: str, message: str, now: datetime, rest_s: float) -> "Extraction":
        """Returns the row while calls for its writer are not made: the attempt that met that does not count."""
        return replace(
            self,
            state=State.RUNNING,
            held=True,
            attempts=max(self.attempts - 1, 0),
            leased_until=now + timedelta(seconds=rest_s),
            reason=reason,
            message=message[:1000],
            updated_at=now,
        )

    def told(self, reason: str, message: str, now: datetime) -> "Extraction":
        """Returns the row of an attempt whose error its caller was told, who has the messages to send them again."""
        return replace(
            self,
            state=State.FAILED,
            payload="",
            held=False,
            leased_until=None,
            reason=reason,
            message=message[:1000],
            updated_at=now,
        )

    def again(self, now: datetime) -> "Extraction":
        """Returns the row as if it had never been tried; what is stored of it stays."""
        return replace(
            self,
            state=State.PENDING,
            held=False,
            attempts=0,
            leased_until=None,
            due_at=now,
            reason="",
            message="",
            updated_at=now,
        )


def retry_wait_s(attempts: int) -> float:
    """Returns how long work rests after so many attempts, doubled each time."""
    return float(min(_FIRST_WAIT_S * 2 ** max(attempts - 1, 0), _LONGEST_WAIT_S))
