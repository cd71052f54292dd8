"""Runs of agents: which there were, and how they went."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from loom_memory.sessions.domain.working import Session

MAX_SUMMARY_BYTES: Final = 2_048


class RunStatus(StrEnum):
    """How a run goes."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One run as it was recorded last; another user's or session's of the same name is another run.

    Attributes:
        ended_at: None while it runs.
    """

    run_id: str
    session: Session
    agent: str
    status: RunStatus
    summary: str
    started_at: datetime
    ended_at: datetime | None
    actor: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are listed; None or empty keeps all."""

    user_id: str | None = None
    session_id: str | None = None
    agent: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """What is recorded of a run; None is as before."""

    run_id: str
    session: Session
    actor: str
    default_agent: str = ""
    agent: str | None = None
    status: RunStatus | None = None
    summary: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


def recorded(before: RunEntry | None, new: Recording, now: datetime) -> RunEntry:
    """Returns a run with what is recorded of it now.

    A run that is said to go on has no end, whatever was recorded before.

    Raises:
        ValueError: It would end before it began, or go on although its end is named.
    """
    status = new.status or (before.status if before else RunStatus.RUNNING)
    started_at = new.started_at or (before.started_at if before else min(now, new.ended_at or now))
    ended_at = new.ended_at
    if status is RunStatus.RUNNING and ended_at is not None:
        raise ValueError("is named although the run is running; say how it went")
    if status is not RunStatus.RUNNING and ended_at is None:
        # A run that began in the future by its own clock has not ended before it.
        ended_at = (before.ended_at if before else None) or max(now, started_at)
    if ended_at is not None and ended_at < started_at:
        raise ValueError("is before the run began")
    return RunEntry(
        new.run_id,
        new.session,
        (before.agent if before else new.default_agent) if new.agent is None else new.agent,
        status,
        (before.summary if before else "") if new.summary is None else new.summary,
        started_at,
        ended_at,
        new.actor,
        now,
    )
