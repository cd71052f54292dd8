"""What an embedder is, whichever provider is behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom_common.errors import LoomError

Vector: TypeAlias = NDArray[np.float32]
"""Shapes: float32 [dim], of unit length."""

Outcome: TypeAlias = Vector | LoomError
"""What became of one text: its vector, or why it has none."""

FAKE: Final = "fake"
LOCAL: Final = "local"
OPENAI: Final = "openai"
GEMINI: Final = "gemini"

REMOTE: Final = frozenset({OPENAI, GEMINI})
"""Providers that are called over the network."""


class Span(NamedTuple):
    """Part of a text, in Unicode code points; the end is out."""

    start: int
    end: int


class Embedder(Protocol):
    """Turns texts into vectors of one model, and adds what that spends to the running call's usage."""

    @property
    def model_name(self) -> str:
        """Name as stored beside each vector; vectors of different names are never compared."""
        ...

    @property
    def dim(self) -> int:
        """Width of every vector."""
        ...

    async def embed(self, text: str) -> Vector:
        """Returns the vector of a query, in one attempt and before any bulk work that waits.

        Raises:
            InvalidArgument: The text is longer than the model's window.
            MalformedEmbedding: The provider answered something that is no vector.
            ProviderBusy: The provider failed in a way that may pass.
            ProviderFailed: The provider failed.
        """
        ...

    async def embed_many(self, texts: Sequence[str]) -> list[Vector]:
        """Returns one vector per text, in order. The texts fit the model's window.

        Raises:
            InvalidArgument: A text is longer than the model's window.
            MalformedEmbedding: The provider answered something that is no vector.
            Overloaded: Too much work waits already.
            ProviderFailed: The provider failed, in all attempts.
        """
        ...

    async def embed_each(self, texts: Sequence[str]) -> list[Outcome]:
        """Returns one vector per text, in order, or why that text has none; it loses no other.

        Raises:
            Overloaded: Too much work waits already.
            ProviderFailed: The provider failed for every text, in all attempts.
        """
        ...


class Tokens(Protocol):
    """Cuts a text into the model's own tokens."""

    def spans(self, text: str) -> list[Span]:
        """Returns where each token lies in `text`, in order, special tokens left out.

        Tokens may share characters and white space belongs to none.
        """
        ...


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What callers must know of the model that this process serves."""

    name: str
    dim: int
    provider: str
    window_tokens: int
    """Most tokens that one vector stands for, special tokens included."""
    special_tokens: int
    """How many of them the model itself adds."""
    noise_floor: float
    """Cosine at or under which two texts are unrelated."""
    longest_word: int | None = None
    """Letters of one word that are read; what comes behind them stands for nothing. None: all are."""

    @property
    def fake(self) -> bool:
        """Whether its vectors carry no meaning."""
        return self.provider == FAKE

    @property
    def budget_tokens(self) -> int:
        """Most tokens of its own that one chunk of text may have."""
        return self.window_tokens - self.special_tokens
