"""Completes a prompt: the gate first, then the cache or the provider, then what it cost."""

from dataclasses import dataclass
from typing import Protocol

from loom_common import call
from loom_common.orphans import Orphans
from loom_common.providers import ProviderError, provider_failed
from loom_common.telemetry.genai import PromptRef, prompted
from loom_llm.app.gate import Gate
from loom_llm.app.models import Models
from loom_llm.app.usage import usage_of
from loom_llm.domain.cache_key import CacheUse
from loom_llm.domain.client import LLMClient
from loom_llm.domain.messages import DEFAULT_MAX_TOKENS, LLMResult, ResponseFormat


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
        client = await self._models.client(prompt.model)
        if prompt.cache is not None:
            client = self._caching.over(client, prompt.cache)
        try:
            with prompted(prompt.reference):
                result = await self._orphans.run(
                    client.complete(prompt.system, prompt.user, prompt.max_tokens, prompt.response_format), usage_of
                )
        except ProviderError as error:
            raise provider_failed(error) from None
        call.current().usage.merge(usage_of(result))
        return result
