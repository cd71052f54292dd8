"""Runs one leg of a search within its time; what fails in it is its own, so that the legs beside it still answer."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from loom_common.call import current
from loom_common.errors import LoomError, Reason

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Leg(StrEnum):
    """What a search over everything asks, each by itself."""

    MEMORY = "memory"
    KNOWLEDGE = "knowledge"
    PROFILE = "profile"
    CONVERSATIONS = "conversations"
    TRACKER = "tracker"
    REPOSITORY = "repository"


BOUNDS_S: Final = {
    # A recipe may ask a model twice, each within its own bound, and a reranker.
    Leg.MEMORY: 30.0,
    Leg.KNOWLEDGE: 5.0,
    Leg.PROFILE: 5.0,
    Leg.CONVERSATIONS: 5.0,
    Leg.TRACKER: 3.0,
    Leg.REPOSITORY: 1.5,
}
"""Time that each may take. Source: the last two are the design's; five seconds are chosen, two embeddings' time."""

# What is left of the caller's own deadline when the last leg has to be given up, so that the others reach it.
_MARGIN_S: Final = 0.15


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a leg found, or the reason why it found nothing."""

    found: T | None
    error: str = ""


def within_call(bound_s: float, margin_s: float = _MARGIN_S) -> float:
    """Returns a bound that ends early enough before the caller's own deadline to answer without what is late."""
    left_s = current().time_left_s()
    return bound_s if left_s is None else min(bound_s, max(left_s - margin_s, left_s / 2))


async def outcome_of(leg: Leg, call: Coroutine[None, None, T], bounds_s: dict[Leg, float] | None = None) -> Outcome[T]:
    """Returns what a leg finds within its time. Never raises but for cancellation."""
    bound_s = within_call((bounds_s or BOUNDS_S)[leg])
    try:
        async with asyncio.timeout(bound_s) as bound:
            return Outcome(await call)
    except LoomError as error:
        if error.reason is Reason.INTERNAL:
            logger.exception("search_leg_failed", extra={"leg": leg.value})
        return Outcome(None, error.reason.value)
    except Exception as error:  # a fault of one leg must not take the others' answers
        if isinstance(error, TimeoutError) and bound.expired():
            logger.warning("search_leg_late", extra={"leg": leg.value, "bound_s": bound_s})
            return Outcome(None, Reason.DEADLINE_EXCEEDED.value)
        logger.exception("search_leg_failed", extra={"leg": leg.value})
        return Outcome(None, Reason.INTERNAL.value)
