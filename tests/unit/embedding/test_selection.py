"""Which embedder is served, and that anything else stops the start with what this build serves."""

import pytest

from loom_embedding.domain.models import LOCAL_MODELS, LocalModel
from loom_embedding.domain.selection import Selection, UnknownModel, select
from loom_embedding.domain.views import UnusableView, View, views_over

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
        ("voyage", None, "LOOM_EMBEDDING_PROVIDER"),
        ("openai", "local:minilm", "no model of openai"),
        ("gemini", "fake-ngram-64", "no model of gemini"),
        ("openai", "prefix:256:text-embedding-3-small", "view"),
        ("openai", "nomic-embed-text", "LOOM_EMBEDDING_DIM"),
        (None, "word2vec", "unknown embedding model"),
        (None, "local:e5", "no local model"),
        ("local", "fake-ngram-64", "no local model"),
        ("fake", "local:minilm", "no fake model"),
        (None, "fake-ngram-0", "no fake model"),
        (None, "fake-ngram-99999", "no fake model"),
        (None, "fake-ngrams", "no fake model"),
        # Other names of a width, which would be other spaces of vectors.
        (None, "fake-ngram-064", "no fake model"),
        (None, "fake-ngram-\N{ARABIC-INDIC DIGIT SIX}\N{ARABIC-INDIC DIGIT FOUR}", "no fake model"),
        (None, "prefix:256:local:minilm", "view"),
        ("local", "ctx[names]:local:minilm", "view"),
    ],
)
def test_anything_else_is_refused_in_one_line(provider: str | None, model: str | None, word: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        select(provider, model)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


BOTH = frozenset({"openai", "gemini"})


@pytest.mark.parametrize(
    ("provider", "model", "dim", "selected"),
    [
        ("openai", None, None, Selection("openai", "text-embedding-3-small", 1536)),
        (None, "text-embedding-3-large", None, Selection("openai", "text-embedding-3-large", 3072)),
        (None, "text-embedding-3-large", 1024, Selection("openai", "text-embedding-3-large", 1024, asked_dim=1024)),
        (None, "text-embedding-3-large", 3072, Selection("openai", "text-embedding-3-large", 3072, asked_dim=3072)),
        (None, "text-embedding-ada-002", 1536, Selection("openai", "text-embedding-ada-002", 1536)),
        ("gemini", None, None, Selection("gemini", "gemini-embedding-001", 3072)),
        (None, "gemini-embedding-001", 768, Selection("gemini", "gemini-embedding-001", 768, asked_dim=768)),
        ("openai", "nomic-embed-text", 768, Selection("openai", "nomic-embed-text", 768, asked_dim=768)),
    ],
)
def test_a_remote_model_has_its_own_width_or_the_one_that_is_asked_for(
    provider: str | None, model: str | None, dim: int | None, selected: Selection
) -> None:
    assert select(provider, model, dim, BOTH) == selected
    assert not selected.key_missing


@pytest.mark.parametrize(("model", "dim"), [("text-embedding-3-small", 3072), ("text-embedding-ada-002", 256)])
def test_a_width_that_a_known_model_cannot_have_is_refused(model: str, dim: int) -> None:
    with pytest.raises(UnknownModel, match=f"LOOM_EMBEDDING_DIM={dim}"):
        select(None, model, dim, BOTH)


@pytest.mark.parametrize(
    ("model", "dim", "fake", "variables"),
    [
        ("text-embedding-3-small", None, "fake-ngram-1536", "OPENAI_API_KEY"),
        ("text-embedding-3-small", 256, "fake-ngram-256", "OPENAI_API_KEY"),
        ("gemini-embedding-001", None, "fake-ngram-3072", "GEMINI_API_KEY or GOOGLE_API_KEY"),
    ],
)
def test_the_fake_of_the_same_width_stands_in_where_the_key_is_missing(
    model: str, dim: int | None, fake: str, variables: str
) -> None:
    selected = select(None, model, dim)
    assert (selected.provider, selected.model, selected.wanted_model) == ("fake", fake, model)
    assert selected.key_missing
    assert selected.key_variables == variables


def test_views_are_read_from_their_labels_in_order_and_each_once() -> None:
    labels = ["prefix:64:m", "ctx[names]:m", "prefix:64:m"]
    assert views_over(labels, "m", 384) == [
        View("prefix:64:m", "m", dim=64),
        View("ctx[names]:m", "m", variant="names"),
    ]


@pytest.mark.parametrize(
    "label",
    ["prefix:384:m", "prefix:0:m", "prefix:64:other", "ctx[names]:other", "ctx[]:m", "ctx[a b]:m", "m", "prefix:x:m"],
)
def test_a_label_that_names_no_view_over_the_served_model_is_refused(label: str) -> None:
    with pytest.raises(UnusableView):
        views_over([label], "m", 384)


@pytest.mark.parametrize("model", LOCAL_MODELS.values(), ids=lambda model: model.id)
def test_every_record_of_a_model_is_whole(model: LocalModel) -> None:
    assert model.dim > 0
    assert model.window_tokens > 0
    assert 0 < model.noise_floor < 1
    assert model.licence in {"Apache-2.0", "MIT"}
    assert all((model.upstream, model.revision, model.source))
    assert all(len(file.sha256) == 64 for file in model.files)
