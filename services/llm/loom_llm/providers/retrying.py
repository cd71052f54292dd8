"""The one retry policy for every provider; the SDKs' own retries are off, so that the numbers are ours."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.stop import stop_base

from loom_common import call
from loom_llm.domain.client import DEFAULT_MAX_TOKENS, LLMClient, LLMResult, ResponseFormat
from loom_llm.domain.failures import FailureKind, ProviderError

BACKOFF_BASE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long a call is tried."""

    attempts: int
    """Attempts in all."""
    max_wait_s: float
    """Longest wait between two attempts. A provider that asks for a longer one is not tried again."""
    total_s: float
    """Time for all attempts together."""


class RetryingClient:
    """Tries another client again where that may help.

    Args:
        inner: Client of one provider.
        policy: How often and how long.
        sleep: Waits; tests give one that does not.
    """

    def __init__(
        self, inner: LLMClient, policy: RetryPolicy, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._sleep = sleep

    @property
    def provider(self) -> str:
        """See `LLMClient.provider`."""
        return self._inner.provider

    @property
    def model(self) -> str:
        """See `LLMClient.model`."""
        return self._inner.model

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        """See `LLMClient.complete`."""
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._policy.attempts) | _NoTimeForTheWait(),
            wait=self._wait_s,
            retry=retry_if_exception(self._may_help),
            sleep=self._sleep,
            reraise=True,
        )
        limit = asyncio.timeout(self._policy.total_s)
        try:
            async with limit:
                return await retrying(self._inner.complete, system, user, max_tokens, response_format)
        except ProviderError as error:
            error.attempts = _attempts(retrying)
            raise
        except TimeoutError:
            if not limit.expired():
                raise
            late = ProviderError(self.provider, FailureKind.TIMEOUT)
            late.attempts = _attempts(retrying)
            raise late from None

    def _may_help(self, error: BaseException) -> bool:
        return (
            isinstance(error, ProviderError)
            and error.retryable
            and (error.retry_after_s or 0.0) <= self._policy.max_wait_s
        )

    def _wait_s(self, state: RetryCallState) -> float:
        backoff_s = min(self._policy.max_wait_s, BACKOFF_BASE_S * 2.0 ** (state.attempt_number - 1))
        error = state.outcome.exception() if state.outcome is not None else None
        asked_s = error.retry_after_s if isinstance(error, ProviderError) else None
        return max(backoff_s, asked_s or 0.0)


class _NoTimeForTheWait(stop_base):
    """Stops where the caller stops waiting before the next attempt would begin."""

    def __call__(self, retry_state: RetryCallState) -> bool:
        left_s = call.current().time_left_s()
        return left_s is not None and retry_state.upcoming_sleep >= left_s


def _attempts(retrying: AsyncRetrying) -> int:
    return int(retrying.statistics.get("attempt_number", 1))
