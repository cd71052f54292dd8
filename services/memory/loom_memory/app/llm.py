"""What memory asks a language model for, and what it gets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from loom_common.prompts import Prompt

DEFAULT_MAX_TOKENS = 1024
DEFAULT_TIMEOUT_S = 300.0
"""Source: as long as the llm service waits for a silent provider; callers that need less say so."""


@dataclass(frozen=True, slots=True)
class ServedLlm:
    """The model that the deployment serves; a fake one echoes, so that its words are no answer."""

    provider: str
    model: str
    fake: bool


@dataclass(frozen=True, slots=True)
class AnswerCacheUse:
    """How an answer may be kept.

    Attributes:
        enabled: Whether it may be taken from the cache and put into it; None for what the traffic class says.
        window_keys: Keys of the memories whose text the prompt carries: erasing one erases the answer.
        tags: Marks by which it can be erased, such as `consolidated` and `src:<key>`.
        traffic_class: Class of the namespace.
    """

    enabled: bool | None = None
    window_keys: Sequence[str] = ()
    tags: Sequence[str] = ()
    traffic_class: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer.

    Attributes:
        text: What it said.
        from_cache: Whether it came from Loom's own cache.
        model: Model that answered.
        stop_reason: `stop`, `length` where it reached its cap, `refusal` where it would not answer.
        fake: Whether a fake answered.
    """

    text: str
    from_cache: bool = False
    model: str = ""
    stop_reason: str = "stop"
    fake: bool = False


class LlmPort(Protocol):
    """Completes prompts and reranks texts. Every method raises LoomError where it cannot."""

    async def served(self) -> ServedLlm:
        """Returns the served model.

        Raises:
            BackendUnavailable: The llm service cannot be reached.
        """
        ...

    async def complete(
        self,
        system: str,
        user: str,
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        json: bool = False,
        feature: str,
        model: str | None = None,
        prompt: Prompt | None = None,
        cache: AnswerCacheUse | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Completion:
        """Completes one prompt, for whom the running call's attribution says.

        Args:
            system: Instructions.
            user: What is asked; texts of others stand in it as data, see `domain.fencing`.
            max_tokens: Most tokens of the answer.
            json: Whether the answer is to be a JSON object.
            feature: Stage that asks, for traces, such as `ask`.
            model: Model to ask; None for the served one.
            prompt: Prompt that `system` begins with, for traces.
            cache: How the answer may be kept; None for not at all.
            timeout_s: Longest wait.

        Raises:
            ReadsLlmFree: The running call only reads, and the deployment keeps models out of reads.
            ProviderFailed: The provider did not answer.
            DeadlineExceeded: It did not answer in time.
            BudgetExhausted: The namespace has spent what it may in a day.
            ModelCallsOff: The organisation has calls to models switched off.
        """
        ...

    async def rerank(self, query: str, texts: Sequence[str], *, endpoint: str, named: bool) -> list[float]:
        """Returns how well each text answers the query, 0 to 1, in the order of the texts.

        Args:
            query: What is looked for.
            texts: At most 200.
            endpoint: `builtin:openai`, `builtin:cohere`, either with `:<model>`, or an endpoint's name.
            named: Whether the request named it itself.

        Raises:
            ProviderFailed: It did not answer, or its answer could not be read.
        """
        ...
