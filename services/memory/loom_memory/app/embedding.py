"""What memory needs of the embedding service."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from loom_common.errors import LoomError


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model that turns text into vectors now.

    Attributes:
        name: As stored beside each vector.
        dim: Width of its vectors.
        fake: Whether its vectors carry no meaning.
        noise_floor: Cosine at or under which two texts are unrelated.
    """

    name: str
    dim: int
    fake: bool
    noise_floor: float


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a text: code points, end out, and its vector, float32 [dim], of unit length."""

    start_offset: int
    end_offset: int
    vector: Sequence[float]


EmbeddedText = list[Chunk] | LoomError
"""The chunks of one text, which cover it, or why it has none."""


def stub_chunks(text: str) -> list[Chunk]:
    """Returns what stands for the chunks of a text whose vectors come later: the embedding worker makes them."""
    return [Chunk(0, len(text), ())]


def is_stub(chunks: Sequence[Chunk]) -> bool:
    """Says whether chunks are such a stand-in."""
    return any(not chunk.vector for chunk in chunks)


class EmbeddingPort(Protocol):
    """Turns texts into vectors of one model."""

    async def served_model(self) -> ServedModel:
        """Returns the model that is served.

        Raises:
            BackendUnavailable: Embedding cannot be reached.
        """
        ...

    async def embed_query(self, text: str) -> Sequence[float]:
        """Returns the vector of a query, float32 [dim], of unit length, within the query's bound.

        Raises:
            EmbedTimeout: The bound passed.
            BackendUnavailable: Embedding cannot be reached.
        """
        ...

    async def embed_many(self, texts: Sequence[str]) -> list[EmbeddedText]:
        """Returns the chunks of each text, in order.

        Raises:
            LoomError: None could be embedded.
        """
        ...
