"""Which embedder is served, and that anything else stops the start with what this build serves."""

import pytest

from loom_embedding.domain.models import LOCAL_MODELS
from loom_embedding.domain.selection import Selection, UnknownModel, select

MINILM = Selection("local", "local:minilm", 384)
BGE_SMALL = Selection("local", "local:bge-small", 384)


@pytest.mark.parametrize(
    ("provider", "model", "dim", "selected"),
    [
        (None, None, None, MINILM),
        ("local", None, None, MINILM),
        (None, "local:minilm", 3072, MINILM),
        (None, "local", None, BGE_SMALL),
        ("local", "local", None, BGE_SMALL),
        (None, "local:bge-base", None, Selection("local", "local:bge-base", 768)),
        (None, "fake-ngram-64", None, Selection("fake", "fake-ngram-64", 64)),
        ("fake", None, None, Selection("fake", "fake-ngram-384", 384)),
        ("fake", None, 128, Selection("fake", "fake-ngram-128", 128)),
    ],
)
def test_the_provider_decides_and_else_the_models_name(
    provider: str | None, model: str | None, dim: int | None, selected: Selection
) -> None:
    assert select(provider, model, dim) == selected


@pytest.mark.parametrize(
    ("provider", "model", "word"),
    [
        ("openai", None, "local:minilm"),
        ("gemini", None, "local:minilm"),
        ("voyage", None, "LOOM_EMBEDDING_PROVIDER"),
        (None, "text-embedding-3-small", "openai"),
        (None, "gemini-embedding-001", "gemini"),
        (None, "word2vec", "unknown embedding model"),
        (None, "local:e5", "no local model"),
        ("local", "fake-ngram-64", "no local model"),
        ("fake", "local:minilm", "no fake model"),
        (None, "fake-ngram-0", "no fake model"),
        (None, "fake-ngram-99999", "no fake model"),
        (None, "fake-ngrams", "no fake model"),
        (None, "prefix:256:local:minilm", "view"),
        ("local", "ctx[names]:local:minilm", "view"),
    ],
)
def test_anything_else_is_refused_in_one_line(provider: str | None, model: str | None, word: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        select(provider, model)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", LOCAL_MODELS.values(), ids=lambda model: model.id)
def test_every_record_of_a_model_is_whole(model: object) -> None:
    assert model in LOCAL_MODELS.values()
    record = LOCAL_MODELS[getattr(model, "id", "")]
    assert record.dim > 0
    assert record.window_tokens > 0
    assert 0 < record.noise_floor < 1
    assert record.licence in {"Apache-2.0", "MIT"}
    assert all(len(file.sha256) == 64 for file in record.files)
