"""What a model client is, whichever provider is behind it."""

from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypedDict

DEFAULT_MAX_TOKENS: Final = 1024


class ResponseFormat(TypedDict):
    """Shape that an answer must have."""

    type: Literal["text", "json_object"]
    """`json_object`: the answer is one JSON object and nothing else."""


@dataclass(frozen=True, slots=True)
class LLMResult:
    """One answer and what it cost."""

    text: str
    provider: str
    """Provider that answered."""
    model: str
    """Model that answered; it may name itself more exactly than it was asked for."""
    input_tokens: int = 0
    """Tokens of the prompt, those read from or written to the provider's cache included."""
    output_tokens: int = 0
    cached_input_tokens: int = 0
    """Tokens of the prompt that the provider read from its cache."""
    cache_write_tokens: int = 0
    """Tokens of the prompt that the provider wrote to its cache."""
    from_cache: bool = False
    """Whether Loom's own cache answered and no provider was called."""


class LLMClient(Protocol):
    """Completes prompts with one model of one provider."""

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
