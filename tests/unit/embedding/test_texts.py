"""Stored texts: as they are, chunked where they are long, each with its own fate."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loom_common.call import Call, bind
from loom_common.errors import PayloadTooLarge, Reason
from loom_embedding.app.texts import MAX_CALL_TOKENS, TextEmbedding
from loom_embedding.domain.chunking import shortened_words
from loom_embedding.domain.embedder import Outcome, Span
from loom_embedding.domain.vectors import MalformedEmbedding, mean_vector, unit_vector
from loom_embedding.providers.fake import FakeEmbedder, FakeTokens, fake_model, trigram_vector

NAME, DIM = "fake-ngram-64", 64


class Refusing(FakeEmbedder):
    """The fake, which answers no vector for texts with a mark in them."""

    async def embed_each(self, texts: Sequence[str]) -> list[Outcome]:
        outcomes = await super().embed_each(texts)
        refused = MalformedEmbedding("scripted")
        return [refused if "POISON" in text else one for text, one in zip(texts, outcomes, strict=True)]


def embedding(embedder: FakeEmbedder | None = None) -> TextEmbedding:
    return TextEmbedding(embedder or FakeEmbedder(NAME, DIM), fake_model(NAME, DIM), FakeTokens())


async def test_texts_are_embedded_raw_and_in_order() -> None:
    texts = ["  one\n", "", "\t", "two"]
    results = await embedding().embed(texts)
    assert [len(result.chunks) for result in results] == [1, 1, 1, 1]
    for text, result in zip(texts, results, strict=True):
        assert result.chunks[0].span == (0, len(text))
        assert np.array_equal(result.chunks[0].vector, trigram_vector(text, DIM))


async def test_a_long_text_has_overlapping_chunks_with_their_own_vectors() -> None:
    text = " ".join(f"word{number}" for number in range(600))
    [short, long] = await embedding().embed(["short", text])
    assert len(short.chunks) == 1
    assert len(long.chunks) == 3
    assert long.chunks[0].span.start == 0
    assert long.chunks[-1].span.end == len(text)
    for chunk in long.chunks:
        part = text[chunk.span.start : chunk.span.end]
        assert np.array_equal(chunk.vector, trigram_vector(part, DIM))


async def test_a_text_that_cannot_be_embedded_loses_no_other() -> None:
    results = await embedding(Refusing(NAME, DIM)).embed(["good", "POISON", "fine"])
    assert [result.error for result in results] == [None, Reason.PROVIDER_FAILED, None]
    assert [len(result.chunks) for result in results] == [1, 0, 1]


async def test_a_long_text_with_one_bad_chunk_has_no_vector_at_all() -> None:
    text = " ".join(["word"] * 600 + ["POISON"])
    [result] = await embedding(Refusing(NAME, DIM)).embed([text])
    assert (result.chunks, result.error) == ((), Reason.PROVIDER_FAILED)


async def test_more_chunks_than_an_answer_carries_are_refused_before_any_work() -> None:
    wide = TextEmbedding(FakeEmbedder("fake-ngram-4096", 4096), fake_model("fake-ngram-4096", 4096), FakeTokens())
    with pytest.raises(PayloadTooLarge) as caught, bind(Call()) as call:
        await wide.embed(["word " * 90] * 600)
    assert caught.value.detail["chunks"] == 600
    assert not call.usage


async def test_more_tokens_than_a_call_takes_are_refused_before_any_work_and_both_numbers_told() -> None:
    with pytest.raises(PayloadTooLarge) as caught, bind(Call()) as call:
        await embedding().embed(["word " * (MAX_CALL_TOKENS // 2), "word " * (MAX_CALL_TOKENS // 2), "one"])
    assert caught.value.detail == {"tokens": MAX_CALL_TOKENS + 1, "max_tokens": MAX_CALL_TOKENS}
    assert not call.usage


async def test_an_endless_word_costs_no_more_than_its_beginning() -> None:
    class Letters(FakeTokens):
        def spans(self, text: str) -> list[Span]:
            return [Span(at, at + 1) for at, letter in enumerate(text) if not letter.isspace()]

    served = replace(fake_model(NAME, DIM), longest_word=500)
    text = f"see {'x' * 60_000} there"
    [result] = await TextEmbedding(FakeEmbedder(NAME, DIM), served, Letters()).embed([text])
    assert len(result.chunks) == 3
    assert (result.chunks[0].span.start, result.chunks[-1].span.end) == (0, len(text))
    last = result.chunks[-1].span
    shown = text[: 4 + 500].ljust(4 + 60_000) + text[4 + 60_000 :]
    assert np.array_equal(result.chunks[-1].vector, trigram_vector(shown[last.start : last.end], DIM))


def test_only_runs_of_letters_that_no_word_is_as_long_as_are_shortened() -> None:
    thai, words = "ก" * 3000, "word " * 1000
    for text in (thai, words, "x" * 1000, "漢" * 3000, ""):
        assert shortened_words(text, 1000) == text
    assert shortened_words(f"a {'é1' * 1000} b", 1000) == f"a {'é1' * 500}{' ' * 1000} b"


@pytest.mark.parametrize("values", [[1.0], [float("nan")] * DIM, [float("inf")] * DIM, [0.0] * DIM, [[1.0] * DIM], []])
def test_what_is_no_vector_is_malformed(values: list[float]) -> None:
    with pytest.raises(MalformedEmbedding):
        unit_vector(values, DIM)


@pytest.mark.parametrize("value", ["1.0", True, None, 10**400, b"1"], ids=["text", "truth", "none", "huge", "bytes"])
def test_what_numpy_would_take_for_a_number_and_is_none_is_malformed(value: Any) -> None:
    with pytest.raises(MalformedEmbedding):
        unit_vector([value] * DIM, DIM)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_a_vector_of_any_length_becomes_a_unit(scale: float) -> None:
    vector = unit_vector([scale, -scale], 2)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-6)


def test_the_mean_of_opposite_vectors_is_one_of_them() -> None:
    one = unit_vector([1.0, 0.0], 2)
    assert np.array_equal(mean_vector([one, -one], 2), one)
    assert mean_vector([one, unit_vector([0.0, 1.0], 2)], 2) == pytest.approx([0.7071, 0.7071], abs=1e-3)


def test_the_fake_is_the_same_on_every_machine() -> None:
    # Source: CRC-32 of UTF-8 trigrams; exact by construction up to the last rounding.
    expected = [0.0, -0.22361, 0.22361, 0.0, 0.22361, 0.0, -0.44721, 0.0, 0.22361, 0.0, -0.67082, 0.22361, 0.0]
    assert trigram_vector("Hello  world", 16)[:13] == pytest.approx(expected, abs=1e-4)
    assert trigram_vector("", 16) @ trigram_vector("hello", 16) < 1


def test_shared_letters_are_found_by_the_fake() -> None:
    one, near, far = (trigram_vector(text, 384) for text in ("dark mode please", "dark mode", "invoice of March"))
    assert one @ near > 0.5
    assert one @ far < 0.3
