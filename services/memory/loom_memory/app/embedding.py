"""What memory needs of the embedding service."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from loom_common.errors import LoomError
from loom_memory.domain.keys import FIRST_KEY_CHUNK


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
    """One chunk of a text: code points, end out, and its vector, float32 [dim], of unit length.

    Attributes:
        of_key: Whether the text is a memory's key, not its value; then the offsets say nothing.
    """

    start_offset: int
    end_offset: int
    vector: Sequence[float]
    of_key: bool = False


EmbeddedText = list[Chunk] | LoomError
"""The chunks of one text, which cover it, or why it has none."""


def with_key(value: EmbeddedText, key: EmbeddedText) -> EmbeddedText:
    """Returns the chunks of a value and of its key together, or why one of them has none: half is not stored."""
    if isinstance(value, LoomError):
        return value
    if isinstance(key, LoomError):
        return key
    return [*value, *(Chunk(0, 0, chunk.vector, of_key=True) for chunk in key)]


def numbered(chunks: Iterable[Chunk]) -> Iterator[tuple[int, Chunk]]:
    """Yields chunks with the numbers of their rows: those of the value from 0, those of the key from the first of its.

    Raises:
        ValueError: The value has more chunks than there are numbers.
    """
    value, key = itertools.count(), itertools.count(FIRST_KEY_CHUNK)
    for chunk in chunks:
        number = next(key if chunk.of_key else value)
        if not chunk.of_key and number >= FIRST_KEY_CHUNK:
            raise ValueError("a value has more chunks than rows can be numbered")
        yield number, chunk


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

    async def ping(self) -> None:
        """Returns once embedding has answered.

        Raises:
            BackendUnavailable: It cannot be reached.
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
