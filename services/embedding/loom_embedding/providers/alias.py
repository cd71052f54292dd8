"""The served model over rewritten texts: the same vectors, kept apart by another name."""

from collections.abc import Sequence

from loom_embedding.domain.embedder import Embedder, Outcome, Vector


class AliasEmbedder:
    """Embeds with another embedder under a label of its own.

    The caller rewrites the texts, as the label's variant says: only it knows what stands around them.

    Args:
        label: Name that is stored beside the vectors.
        inner: The served model.
    """

    def __init__(self, label: str, inner: Embedder) -> None:
        self.model_name = label
        self.dim = inner.dim
        self._inner = inner

    async def embed(self, text: str) -> Vector:
        """See `Embedder.embed`."""
        return await self._inner.embed(text)

    async def embed_many(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.embed_many`."""
        return await self._inner.embed_many(texts)

    async def embed_each(self, texts: Sequence[str]) -> list[Outcome]:
        """See `Embedder.embed_each`."""
        return await self._inner.embed_each(texts)
