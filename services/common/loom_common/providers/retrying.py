"""The one retry policy for every provider; the SDKs' own retries are off, so that the numbers are ours."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.stop import stop_base

from loom_common import call
from loom_common.providers.failures import FailureKind, ProviderError

T = TypeVar("T")

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
"""Waits that many seconds; tests give one that does not."""

BACKOFF_BASE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What is tried again, how often and how long."""

    statuses: frozenset[int]
    """HTTP statuses after which the same request may succeed. Transport errors always count, an unreadable answer
    never."""
    attempts: int
    """Attempts in all."""
    max_wait_s: float
    """Longest wait between two attempts. A provider that asks for a longer one is not tried again."""
    total_s: float | None = None
    """Time for all attempts together; None leaves that to the caller's deadline."""

    def may_help(self, error: ProviderError) -> bool:
        """Returns whether the same request may succeed when it is sent again, within a wait that is allowed."""
        if (error.retry_after_s or 0.0) > self.max_wait_s:
            return False
        if error.kind is FailureKind.STATUS:
            return error.status in self.statuses
        return error.kind is not FailureKind.MALFORMED

    def wait_s(self, attempt: int, error: ProviderError | None) -> float:
        """Returns the wait after attempt number `attempt` (from 1): doubling, and what the provider asks at least."""
        backoff_s = min(self.max_wait_s, BACKOFF_BASE_S * 2.0 ** (attempt - 1))
        asked_s = error.retry_after_s if error is not None else None
        return max(backoff_s, asked_s or 0.0)


class Retrying:
    """Tries calls again where that may help.

    Args:
        policy: What, how often and how long.
        sleep: Waits between attempts.
    """

    def __init__(self, policy: RetryPolicy, *, sleep: Sleep = asyncio.sleep) -> None:
        self._policy = policy
        self._sleep = sleep

    async def run(self, provider: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Returns what `attempt` answers, the first time that it does.

        Raises:
            ProviderError: It did not, in all the attempts that were worth making; the last one's failure.
        """
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._policy.attempts) | _NoTimeForTheWait(),
            wait=self._wait_s,
            retry=retry_if_exception(lambda error: isinstance(error, ProviderError) and self._policy.may_help(error)),
            sleep=self._sleep,
            reraise=True,
        )
        limit = asyncio.timeout(self._policy.total_s)

        async def once() -> T:  # tenacity awaits coroutine functions only, not what returns an awaitable
            return await attempt()

        try:
            async with limit:
                return await retrying(once)
        except ProviderError as error:
            error.attempts = _attempts(retrying)
            raise
        except TimeoutError:
            if not limit.expired():
                raise
            late = ProviderError(provider, FailureKind.TIMEOUT)
            late.attempts = _attempts(retrying)
            raise late from None

    def _wait_s(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        return self._policy.wait_s(state.attempt_number, error if isinstance(error, ProviderError) else None)


class _NoTimeForTheWait(stop_base):
    """Stops where the caller stops waiting before the next attempt would begin."""

    def __call__(self, retry_state: RetryCallState) -> bool:
        left_s = call.current().time_left_s()
        return left_s is not None and retry_state.upcoming_sleep >= left_s


def _attempts(retrying: AsyncRetrying) -> int:
    return int(retrying.statistics.get("attempt_number", 1))
