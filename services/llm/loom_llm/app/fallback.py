"""Hands calls to a second model where the first one's provider is out or refuses the request."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import structlog

from loom_common import call, telemetry
from loom_common.providers import FailureKind, ProviderError
from loom_llm.domain.client import LLMClient
from loom_llm.domain.failures import hands_over
from loom_llm.domain.messages import DEFAULT_MAX_TOKENS, ChatRequest, Delta, LLMResult, ResponseFormat
from loom_llm.domain.opening import opened, until

_log = structlog.get_logger(__name__)


class FallbackClient:
    """Asks a second model where the first one does not answer. A refusal of ours is no failure and ends here.

    Args:
        first: Model that is asked.
        second: Model that stands in; one that has no fallback itself.
        total_s: Time for both together. Units: seconds.
    """

    def __init__(self, first: LLMClient, second: LLMClient, *, total_s: float) -> None:
        self._first = first
        self._second = second
        self._total_s = total_s

    @property
    def provider(self) -> str:
        """See `LLMClient.provider`: that of the first model."""
        return self._first.provider

    @property
    def model(self) -> str:
        """See `LLMClient.model`: the first one."""
        return self._first.model

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        """See `LLMClient.complete`; the result names the model that answered."""
        ends_s = time.monotonic() + self._total_s
        try:
            return await self._first.complete(system, user, max_tokens, response_format)
        except ProviderError as error:
            self._note_or_raise(error, ends_s)
        limit = asyncio.timeout(ends_s - time.monotonic())
        try:
            async with limit:
                result = await self._second.complete(system, user, max_tokens, response_format)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ProviderError(self._second.provider, FailureKind.TIMEOUT) from None
        return replace(result, fell_back=True)

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """See `LLMClient.chat`. Handed over until something can be seen."""
        ends_s = time.monotonic() + self._total_s
        try:
            stream = await opened(self._first.chat(request))
        except ProviderError as error:
            self._note_or_raise(error, ends_s)
        else:
            async with aclosing(stream.deltas()) as deltas:
                async for delta in deltas:
                    yield delta
            return
        async with aclosing(until(self._second.chat(request), ends_s, self._second.provider)) as deltas:
            async for delta in deltas:
                yield delta if delta.result is None else replace(delta, result=replace(delta.result, fell_back=True))

    def _note_or_raise(self, error: ProviderError, ends_s: float) -> None:
        nobody_waits = call.current().time_left_s() == 0
        if not hands_over(error) or nobody_waits or time.monotonic() >= ends_s:
            raise error
        telemetry.add("loom.llm.fallback", model=self._first.model, fallback=self._second.model)
        _log.warning(
            "llm_fallback",
            model=self._first.model,
            fallback=self._second.model,
            provider=error.provider,
            kind=error.kind.value,
            status=error.status,
        )
