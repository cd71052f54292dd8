"""What Loom is compared with in the same run: BM25 alone and vectors alone, over the same texts and the same model."""

from collections.abc import Sequence
from typing import Any, Final

import bm25s
import numpy as np
import numpy.typing as npt
import Stemmer
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType

from bench.datasets import Conversation, Turn

Scores = npt.NDArray[np.float32]
_NAME: Final = "bench/all-MiniLM-L6-v2-int8"


def text_of(turn: Turn) -> str:
    """Returns a turn as a store without fields would hold it: date, speaker and words in one text."""
    day = f"({turn.day.day} {turn.day:%B %Y}) " if turn.day else ""
    return f"{day}{turn.speaker}: {turn.text}"


def bm25_scores(conversation: Conversation) -> Scores:
    """Returns BM25 of each question and turn: [question, turn]."""
    return bm25_of(
        [text_of(turn) for turn in conversation.turns], [question.text for question in conversation.questions]
    )


def bm25_of(texts: Sequence[str], queries: Sequence[str]) -> Scores:
    """Returns BM25 (Lucene's form, k1 1.2, b 0.75) with Porter2 stems and English stop words: [query, text]."""
    stemmer = Stemmer.Stemmer("english")
    options: dict[str, Any] = {"stopwords": "en", "stemmer": stemmer, "show_progress": False}
    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    index.index(bm25s.tokenize(list(texts), **options), show_progress=False)
    rows = []
    for query in queries:
        tokens = bm25s.tokenize(query, return_ids=False, **options)[0]
        rows.append(index.get_scores(tokens) if tokens else np.zeros(len(texts)))
    return np.asarray(rows, dtype=np.float32)


class Embedder:
    """The model that Loom ships with, loaded as a user of fastembed would load it."""

    def __init__(self, folder: str) -> None:
        if _NAME not in {model["model"] for model in TextEmbedding.list_supported_models()}:
            TextEmbedding.add_custom_model(
                model=_NAME,
                pooling=PoolingType.MEAN,
                normalization=True,
                sources=ModelSource(hf="bench/none"),
                dim=384,
                model_file="model.onnx",
                license="apache-2.0",
            )
        self._model = TextEmbedding(_NAME, specific_model_path=folder, providers=["CPUExecutionProvider"])

    def __call__(self, texts: Sequence[str]) -> Scores:
        """Returns one vector of unit length per text: [text, 384]."""
        return np.asarray(list(self._model.embed([text or " " for text in texts], batch_size=16)), dtype=np.float32)


def vector_scores(conversation: Conversation, embed: Embedder) -> Scores:
    """Returns cosines of the question and the turn, whole: [question, turn]."""
    return cosines_of(
        [text_of(turn) for turn in conversation.turns], [question.text for question in conversation.questions], embed
    )


def cosines_of(texts: Sequence[str], queries: Sequence[str], embed: Embedder) -> Scores:
    """Returns cosines: [query, text]."""
    scores: Scores = embed(queries) @ embed(texts).T
    return scores
