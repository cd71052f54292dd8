"""Notes how calls to models end: for health, for the metrics, for the log."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from loom_common import telemetry
from loom_common.providers import ProviderError, ProviderHealth
from loom_common.status import Problem
from loom_llm.domain.client import LLMClient
from loom_llm.domain.messages import DEFAULT_MAX_TOKENS, ChatRequest, Delta, LLMResult, ResponseFormat

_log = structlog.get_logger(__name__)


class Healths:
    """How each provider fares."""

    def __init__(self) -> None:
        self._by_provider: dict[str, ProviderHealth] = {}

    def of(self, provider: str) -> ProviderHealth:
        """Returns the health of one provider."""
        return self._by_provider.setdefault(provider, ProviderHealth())

    def problems(self) -> list[Problem]:
        """Returns what an operator should know of all of them."""
        return [problem for health in self._by_provider.values() for problem in health.problems()]


class WatchedClient:
    """Notes how each call to another client ends, after all its attempts.

    What our own gates refuse, and what a caller gives up, says nothing about the provider.

    Args:
        inner: The client.
        health: Health of its provider.
    """

    def __init__(self, inner: LLMClient, health: ProviderHealth) -> None:
        self._inner = inner
        self._health = health

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
        try:
            result = await self._inner.complete(system, user, max_tokens, response_format)
        except ProviderError as error:
            self._failed(error)
            raise
        self._answered()
        return result

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """See `LLMClient.chat`."""
        ended = False
        try:
            async with aclosing(self._inner.chat(request)) as deltas:
                async for delta in deltas:
                    if delta.result is not None:
                        ended = True
                        self._answered()
                    yield delta
        except ProviderError as error:
            self._failed(error)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            if not ended:
                telemetry.add("loom.llm.calls", model=self.model, outcome="left")
            raise

    def _answered(self) -> None:
        answered(self._health, self.model)

    def _failed(self, error: ProviderError) -> None:
        failed(self._health, self.model, error)


def answered(health: ProviderHealth, model: str) -> None:
    """Notes that a model answered."""
    telemetry.add("loom.llm.calls", model=model, outcome="ok")
    health.answered()


def failed(health: ProviderHealth, model: str, error: ProviderError) -> None:
    """Notes that a model did not answer, after all attempts."""
    telemetry.add("loom.llm.calls", model=model, outcome=error.kind.value)
    health.failed(error)
    _log.warning(
        "provider_failed",
        provider=error.provider,
        model=model,
        kind=error.kind.value,
        status=error.status,
        attempts=error.attempts,
    )
