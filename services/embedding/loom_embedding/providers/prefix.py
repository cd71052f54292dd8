"""A narrower view over the served model: its vectors' first values, which Matryoshka models make to stand alone."""

from collections.abc import Sequence

from loom_common.errors import LoomError
from loom_embedding.domain.embedder import Embedder, Outcome, Vector
from loom_embedding.domain.vectors import unit_vector


class PrefixEmbedder:
    """Cuts another embedder's vectors and makes them of unit length again.

    Args:
        label: Name that is stored beside the vectors.
        inner: The served model.
        dim: Width to cut to; below that of `inner`.
    """

    def __init__(self, label: str, inner: Embedder, dim: int) -> None:
        self.model_name = label
        self.dim = dim
        self._inner = inner

    async def embed(self, text: str) -> Vector:
        """See `Embedder.embed`."""
        return self._cut(await self._inner.embed(text))

    async def embed_many(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.embed_many`."""
        return [self._cut(vector) for vector in await self._inner.embed_many(texts)]

    async def embed_each(self, texts: Sequence[str]) -> list[Outcome]:
        """See `Embedder.embed_each`."""
        outcomes: list[Outcome] = []
        for outcome in await self._inner.embed_each(texts):
            try:
                outcomes.append(outcome if isinstance(outcome, LoomError) else self._cut(outcome))
            except LoomError as error:  # a prefix without a direction
                outcomes.append(error)
        return outcomes

    def _cut(self, vector: Vector) -> Vector:
        return unit_vector(vector[: self.dim], self.dim)
