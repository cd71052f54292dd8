"""A language model that is not there: for processes that were given none. Every use of one fails open or says so."""

from collections.abc import Sequence

from loom_common.errors import BackendUnavailable
from loom_common.prompts import Prompt
from loom_memory.app.llm import DEFAULT_MAX_TOKENS, DEFAULT_TIMEOUT_S, AnswerCacheUse, Completion, ServedLlm


class AbsentLlm:
    """Answers nothing. An `LlmPort`."""

    async def served(self) -> ServedLlm:
        """See `LlmPort.served`."""
        raise BackendUnavailable("There is no language model.")

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
        """See `LlmPort.complete`."""
        raise BackendUnavailable("There is no language model.")

    async def rerank(self, query: str, texts: Sequence[str], *, endpoint: str, named: bool) -> list[float]:
        """See `LlmPort.rerank`."""
        raise BackendUnavailable("There is no reranker.")
