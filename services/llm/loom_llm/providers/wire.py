"""What one provider's API must be able to do; everything else is the same for all."""

from collections.abc import AsyncGenerator
from typing import Protocol

from loom_llm.domain.messages import ChatRequest, Delta, LLMResult
from loom_llm.domain.traits import Shape


class Wire(Protocol):
    """Sends requests to one provider and reads its answers; one for all models, since they share connections."""

    @property
    def provider(self) -> str:
        """Name of the provider."""
        ...

    def wished(self) -> Shape:
        """Returns the shape in which requests would best be sent, before anything is known of a model."""
        ...

    async def send(self, model: str, request: ChatRequest, shape: Shape, cap: int) -> LLMResult:
        """Returns the whole answer.

        Args:
            model: Model to ask.
            request: What to ask.
            shape: How to send it.
            cap: Most tokens of the answer, hidden reasoning included.

        Raises:
            RefusedShape: The provider refused the request as it was sent.
            ProviderError: It did not answer.
        """
        ...

    def stream(self, model: str, request: ChatRequest, shape: Shape, cap: int) -> AsyncGenerator[Delta, None]:
        """Yields the answer piece by piece; see `send`. Closing the generator closes the connection."""
        ...

    async def aclose(self) -> None:
        """Closes its connections."""
        ...
