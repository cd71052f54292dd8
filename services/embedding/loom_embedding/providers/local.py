"""Local models: ONNX on this machine's processor through fastembed, with no network at any time."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from tokenizers import Regex, Tokenizer, pre_tokenizers

from loom_common import call
from loom_common.usage import Usage
from loom_embedding.domain.embedder import LOCAL, ServedModel, Span, Vector
from loom_embedding.domain.models import LocalModel
from loom_embedding.domain.vectors import unit_vector
from loom_embedding.providers.batches import BatchQueue, Rows

SPECIAL_TOKENS: Final = 2
"""A beginning and an end, in every model of the BERT family."""

# A BERT tokenizer replaces a longer word by one unknown token, so that a long text in a script without spaces, or a
# long identifier, would lose all its content. Cut into pieces of this length it keeps it; other words are untouched.
_LONGEST_WORD: Final = 100

# Source: measured 2026-11-30: below this length a tokenizer's call costs less than handing it to a thread.
_INLINE_CHARS: Final = 2_000


def local_model(model: LocalModel) -> ServedModel:
    """Returns what callers must know of a local model."""
    return ServedModel(model.id, model.dim, LOCAL, model.window_tokens, SPECIAL_TOKENS, model.noise_floor)


class LocalTokens:
    """A local model's tokens, counted without a limit."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        cut_long_words(self._tokenizer)

    def spans(self, text: str) -> list[Span]:
        """See `Tokens.spans`."""
        return [Span(*offsets) for offsets in self._tokenizer.encode(text, add_special_tokens=False).offsets]

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Returns how many tokens each text has, special tokens included."""
        return [len(encoding.ids) for encoding in self._tokenizer.encode_batch(list(texts))]


class OnnxModel:
    """One loaded model. Blocking: call it from a thread. Two threads may call it at once."""

    def __init__(self, model: LocalModel, folder: Path, threads: int) -> None:
        # Imported here: it takes two seconds and a process that serves a fake has no use for it.
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType
        from fastembed.text.onnx_embedding import OnnxTextEmbedding

        name = f"loom/{model.id}"
        if name not in {known["model"] for known in TextEmbedding.list_supported_models()}:
            TextEmbedding.add_custom_model(
                model=name,
                pooling=PoolingType.MEAN if model.pooling == "mean" else PoolingType.CLS,
                normalization=model.normalized,
                sources=ModelSource(hf="loom/none"),  # must be given, is never contacted
                dim=model.dim,
                model_file="model.onnx",
                license=model.licence.lower(),
            )
        self._embedding = TextEmbedding(
            name,
            specific_model_path=str(folder),
            threads=threads,
            providers=["CPUExecutionProvider"],
            local_files_only=True,
        )
        loaded = self._embedding.model
        if not isinstance(loaded, OnnxTextEmbedding) or loaded.tokenizer is None:
            raise TypeError("fastembed loaded another kind of model than was registered")
        tokenizer = loaded.tokenizer
        # fastembed takes the size of the position table for the window. Chunks fit already; this is the last resort.
        tokenizer.enable_truncation(max_length=model.window_tokens)
        cut_long_words(tokenizer)

    def embed_batch(self, texts: Sequence[str]) -> Rows:
        """Returns the vectors of `texts` in one batch. Shapes: float32 [batch, dim]."""
        return np.stack(list(self._embedding.embed(list(texts), batch_size=len(texts))))


class LocalEmbedder:
    """Embeds with a loaded local model, in batches off the event loop."""

    def __init__(self, model: LocalModel, tokens: LocalTokens, queue: BatchQueue) -> None:
        self.model_name = model.id
        self.dim = model.dim
        self._tokens = tokens
        self._queue = queue

    async def embed(self, text: str) -> Vector:
        """See `Embedder.embed`."""
        [tokens] = await self._count([text])
        return unit_vector(await self._queue.embed_query(text, tokens), self.dim)

    async def embed_many(self, texts: Sequence[str]) -> list[Vector]:
        """See `Embedder.embed_many`."""
        tokens = await self._count(texts)
        return [unit_vector(row, self.dim) for row in await self._queue.embed_bulk(texts, tokens)]

    async def _count(self, texts: Sequence[str]) -> list[int]:
        if sum(map(len, texts)) <= _INLINE_CHARS:
            counts = self._tokens.counts(texts)
        else:
            counts = await asyncio.to_thread(self._tokens.counts, texts)
        spent = sum(counts)
        call.current().usage.merge(Usage(embedding_tokens=spent, model=self.model_name, model_tokens=spent))
        return counts


def cut_long_words(tokenizer: Tokenizer) -> None:
    """Makes `tokenizer` cut words that are too long for its vocabulary instead of losing them."""
    pieces = pre_tokenizers.Split(Regex(f".{{{_LONGEST_WORD}}}"), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([tokenizer.pre_tokenizer, pieces])
