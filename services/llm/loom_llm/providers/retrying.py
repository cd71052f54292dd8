"""Tries a provider's client again where that may help."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from loom_common.providers import ProviderError, Retrying, RetryPolicy, Sleep
from loom_llm.domain.client import LLMClient
from loom_llm.domain.failures import RETRYABLE_STATUSES
from loom_llm.domain.messages import DEFAULT_MAX_TOKENS, ChatRequest, Delta, LLMResult, ResponseFormat
from loom_llm.domain.opening import OpenStream, opened, until


def retry_policy(*, attempts: int, max_wait_s: float, total_s: float) -> RetryPolicy:
    """Returns the policy of calls that complete text; see `RetryPolicy` for the numbers."""
    return RetryPolicy(RETRYABLE_STATUSES, attempts, max_wait_s, total_s)


class RetryingClient:
    """Tries another client again, and ends what takes too long in all.

    Args:
        inner: Client of one provider.
        policy: What, how often and how long.
        sleep: Waits between attempts.
    """

    def __init__(self, inner: LLMClient, policy: RetryPolicy, *, sleep: Sleep = asyncio.sleep) -> None:
        self._inner = inner
        self._policy = policy
        self._retrying = Retrying(policy, sleep=sleep)

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
        return await self._retrying.run(
            self.provider, lambda: self._inner.complete(system, user, max_tokens, response_format)
        )

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """See `LLMClient.chat`. Tried again until something can be seen: what was shown cannot be taken back."""
        ends_s = time.monotonic() + (self._policy.total_s or float("inf"))
        attempts = 0

        async def attempt() -> OpenStream:
            nonlocal attempts
            attempts += 1
            return await opened(self._inner.chat(request))

        stream = await self._retrying.run(self.provider, attempt)
        try:
            async with aclosing(until(stream.deltas(), ends_s, self.provider)) as deltas:
                async for delta in deltas:
                    yield delta
        except ProviderError as error:
            error.attempts = attempts
            raise
