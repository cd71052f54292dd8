"""Completes a prompt: the gate first, then the cache or the provider, then what it cost."""

from dataclasses import dataclass
from typing import Protocol

from loom_common import call
from loom_common.errors import LoomError
from loom_common.orphans import Orphans
from loom_common.providers import ProviderError, provider_failed
from loom_common.telemetry.genai import PromptRef, prompted
from loom_common.usage import Usage
from loom_llm.app.gate import Gate
from loom_llm.app.models import Models
from loom_llm.app.usage import usage_of
from loom_llm.domain.cache_key import CacheUse
from loom_llm.domain.client import LLMClient
from loom_llm.domain.messages import DEFAULT_MAX_TOKENS, LLMResult, ResponseFormat
from loom_llm.domain.spending import Wasted, collecting


class Caching(Protocol):
    """Puts a cache of answers before a model."""

    def over(self, client: LLMClient, use: CacheUse) -> LLMClient:
        """Returns a client that answers from the cache where it can; for the running call alone."""
        ...


class NoCache:
    """Answers nothing. A `Caching`."""

    def over(self, client: LLMClient, use: CacheUse) -> LLMClient:
        """See `Caching.over`."""
        return client


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, and how it is to be completed."""

    system: str
    user: str
    max_tokens: int = DEFAULT_MAX_TOKENS
    response_format: ResponseFormat | None = None
    model: str = ""
    """Model to ask; empty for the served one."""
    cache: CacheUse | None = None
    """How Loom's own cache of answers is used; None for not at all."""
    reference: PromptRef | None = None
    """Which prompt of Loom's it is, for traces."""


class Completion:
    """Completes prompts.

    Args:
        models: The models.
        orphans: Sees to calls that their callers left.
        gate: Says whether a call may have an answer.
        caching: Loom's own cache of answers.
    """

    def __init__(self, models: Models, orphans: Orphans, gate: Gate, caching: Caching | None = None) -> None:
        self._models = models
        self._orphans = orphans
        self._gate = gate
        self._caching = caching or NoCache()

    async def complete(self, prompt: Prompt) -> LLMResult:
        """Returns the model's answer to one prompt.

        Raises:
            ModelCallUnattributed: Nobody says whom the call is for.
            ReadsLlmFree: It is for an operation that only reads, and the deployment keeps models out of these.
            ProviderFailed: The provider did not answer.
        """
        await self._gate.require()
        return await self.allowed(prompt)

    async def allowed(self, prompt: Prompt) -> LLMResult:
        """Returns the model's answer for a call that passed the gate already.

        Raises:
            ProviderFailed: The provider did not answer.
        """
        client = await self._models.client(prompt.model)
        if prompt.cache is not None:
            client = self._caching.over(client, prompt.cache)
        try:
            with prompted(prompt.reference), collecting() as wasted:
                outcome = await self._orphans.run(_outcome(client, prompt, wasted), _Outcome.usage)
        except ProviderError as error:
            raise provider_failed(error) from None
        call.current().usage.merge(outcome.usage())
        answer = outcome.answer
        if isinstance(answer, ProviderError):
            raise provider_failed(answer) from None
        if isinstance(answer, LoomError):
            raise answer
        return answer


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of a prompt, and what it cost."""

    answer: LLMResult | ProviderError | LoomError
    wasted: Wasted

    def usage(self) -> Usage:
        """Returns what was spent, in vain too."""
        usage = Usage() if not isinstance(self.answer, LLMResult) else usage_of(self.answer)
        for result in self.wasted:
            usage.merge(usage_of(result))
        return usage


async def _outcome(client: LLMClient, prompt: Prompt, wasted: Wasted) -> _Outcome:
    """Returns what comes of a prompt. A failure is returned where something was paid for it: else no row would tell."""
    try:
        answer = await client.complete(prompt.system, prompt.user, prompt.max_tokens, prompt.response_format)
    except (ProviderError, LoomError) as error:
        if not wasted:
            raise
        return _Outcome(error, wasted)
    return _Outcome(answer, wasted)
