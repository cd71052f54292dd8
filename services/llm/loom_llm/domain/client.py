"""What a model client is, whichever provider is behind it."""

from collections.abc import AsyncGenerator
from typing import Protocol

from loom_llm.domain.messages import DEFAULT_MAX_TOKENS, ChatRequest, Delta, LLMResult, ResponseFormat


class LLMClient(Protocol):
    """Completes prompts and continues conversations with one model of one provider."""

    @property
    def provider(self) -> str:
        """Name of the provider."""
        ...

    @property
    def model(self) -> str:
        """Name of the model that is asked."""
        ...

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        """Returns the model's answer to one prompt, within a time of its own: it may outlive its caller.

        Args:
            system: Instructions; may be empty.
            user: What is asked.
            max_tokens: Most tokens of the answer.
            response_format: Shape of the answer. Default: text.

        Raises:
            ProviderError: The provider did not answer.
        """
        ...

    def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Yields the model's answer piece by piece; the last piece carries the whole and what it cost.

        Closing the generator ends the provider's stream.

        Raises:
            ProviderError: The provider did not answer, or broke off. The latter may come after pieces.
        """
        ...
