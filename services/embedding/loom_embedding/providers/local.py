"""Local models: ONNX on this machine's processor, with no network at any time."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, pre_tokenizers

from loom_common import call
from loom_common.usage import Usage
from loom_embedding.domain.embedder import LOCAL, Outcome, ServedModel, Span, Vector
from loom_embedding.domain.models import LocalModel
from loom_embedding.domain.vectors import MalformedEmbedding, unit_vector
from loom_embedding.providers.batches import BatchQueue, Rows

SPECIAL_TOKENS: Final = 2
"""A beginning and an end, in every model of the BERT family."""

LONGEST_READ: Final = 1_000
"""Letters of one word that are read.

Source: chosen, ten times what these models' own tokenizers take; a word of 60,000 letters would be 270 windows of
nothing, which took 14 s and longer beside other work.
"""

# A BERT tokenizer replaces a longer word by one unknown token, so that a long text in a script without spaces, or a
# long identifier, would lose all its content. Cut into pieces of this length it keeps it; other words are untouched.
_LONGEST_WORD: Final = 100

# Keeps a division by the length of nothing from being one by zero.
_TINY: Final = 1e-12

# Source: measured 2026-11-30: below this length a tokenizer's call costs less than handing it to a thread.
_INLINE_CHARS: Final = 2_000


def local_model(model: LocalModel) -> ServedModel:
    """Returns what callers must know of a local model."""
    return ServedModel(
        model.id, model.dim, LOCAL, model.window_tokens, SPECIAL_TOKENS, model.noise_floor, longest_word=LONGEST_READ
    )


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
    """One loaded model. Blocking: call it from a thread. Several may call it at once; each call computes in its own.

    The arithmetic is fastembed's, to the bit. The library itself is left to downloads: its import brings a client of
    model hubs with it, which takes longer than everything that is done here.
    """

    def __init__(self, model: LocalModel, folder: Path) -> None:
        # Imported here: a process that serves a fake has no use for it.
        import onnxruntime  # type: ignore[import-untyped]  # it ships no types

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        # The session's own threads wait for work by spinning: on two cores they took 45 ms of a processor after each
        # text of 8 ms, and a batch gained less by them than by a second batch beside it (measured 2026-11-30).
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._model = model
        self._session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), sess_options=options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {node.name for node in self._session.get_inputs()}
        self._tokenizer = _batch_tokenizer(model, folder)

    def embed_batch(self, texts: Sequence[str]) -> Rows:
        """Returns the vectors of `texts` in one batch. Shapes: float32 [batch, dim]."""
        encoded = self._tokenizer.encode_batch(list(texts))
        tokens = np.array([encoding.ids for encoding in encoded], dtype=np.int64)
        mask = np.array([encoding.attention_mask for encoding in encoded], dtype=np.int64)
        feeds = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
        states: Rows = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        pooled = states[:, 0] if self._model.pooling == "cls" else _mean(states, mask)
        if self._model.normalized:
            pooled = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), _TINY)
        return pooled.astype(np.float32)


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

    async def embed_each(self, texts: Sequence[str]) -> list[Outcome]:
        """See `Embedder.embed_each`."""
        tokens = await self._count(texts)
        outcomes: list[Outcome] = []
        for row in await self._queue.embed_bulk_each(texts, tokens):
            try:
                outcomes.append(row if isinstance(row, MalformedEmbedding) else unit_vector(row, self.dim))
            except MalformedEmbedding as error:
                outcomes.append(error)
        return outcomes

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


def _batch_tokenizer(model: LocalModel, folder: Path) -> Tokenizer:
    """Returns a tokenizer that pads to the longest text of a batch and cuts at the model's window."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    padding = tokenizer.padding or {}
    token = padding.get("pad_token") or json.loads((folder / "tokenizer_config.json").read_text("utf-8"))["pad_token"]
    tokenizer.enable_padding(pad_token=token, pad_id=tokenizer.token_to_id(token))
    # Chunks fit already; this is the last resort.
    tokenizer.enable_truncation(max_length=model.window_tokens)
    cut_long_words(tokenizer)
    return tokenizer


def _mean(states: Rows, mask: NDArray[np.int64]) -> Rows:
    """Returns the mean of each text's own tokens. Shapes: [batch, tokens, dim] to float64 [batch, dim]."""
    total: Rows = np.sum(states, axis=1, where=mask[:, :, np.newaxis].astype(bool), dtype=np.float64)
    mean: Rows = total / np.maximum(np.sum(mask, axis=1, keepdims=True), _TINY)
    return mean
