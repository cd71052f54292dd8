"""Chunks leave nothing out and fit the window, whatever the text."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_embedding.domain.chunking import OVERLAP_TOKENS, chunk_spans
from loom_embedding.domain.embedder import Span
from loom_embedding.providers.fake import FakeTokens
from loom_embedding.providers.local import LocalTokens

BUDGET = 254

PIECES = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "The quick brown fox jumps over the lazy dog. ",
            "pneumonoultramicroscopicsilicovolcanoconiosis",
            "สวัสดีครับยินดีที่ได้รู้จัก",
            "東京都に住んでいます。今日は天気がいい。",
            "한국어문장입니다",
            "ZX-4417-Q C:\\src\\main.py foo_bar ",
            "ﬃﬃﬃ",
            "é" * 7,
            "👩‍👩‍👧‍👦",
            "\n\n",
            " " * 9,
            "x" * 130,
        ]
    ),
)
TEXTS = st.lists(st.tuples(PIECES, st.integers(1, 30)), max_size=12).map(
    lambda parts: "".join(piece * times for piece, times in parts)
)


def uncovered(text: str, chunks: Sequence[Span]) -> str:
    """Says what is wrong with how `chunks` cover `text`; empty when nothing is."""
    if not chunks or chunks[0].start != 0 or chunks[-1].end != len(text):
        return f"ends are left out: {chunks}"
    for before, after in pairwise(chunks):
        if not before.start < after.start <= before.end < after.end:
            return f"{before} then {after}"
    return ""


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_chunks_of_any_text_cover_it_and_fit_the_window_of_the_real_model(
    minilm_tokens: LocalTokens, text: str
) -> None:
    chunks = chunk_spans(text, minilm_tokens, BUDGET)
    assert uncovered(text, chunks) == ""
    for chunk in chunks:
        assert minilm_tokens.counts([text[chunk.start : chunk.end]])[0] <= BUDGET + 2


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, budget=st.integers(8, 40))
def test_chunks_cover_the_text_for_every_small_budget(text: str, budget: int) -> None:
    chunks = chunk_spans(text, FakeTokens(), budget)
    assert uncovered(text, chunks) == ""
    assert all(len(FakeTokens().spans(text[chunk.start : chunk.end])) <= budget for chunk in chunks)


@pytest.mark.parametrize("text", ["", " ", "\t\n \u3000", "\u200b\u200d", "\u0301" * 3, "\x01\x02", "word"])
def test_a_text_without_much_in_it_has_one_chunk_that_is_the_whole(minilm_tokens: LocalTokens, text: str) -> None:
    assert chunk_spans(text, minilm_tokens, BUDGET) == [Span(0, len(text))]


def test_a_text_of_exactly_the_window_is_not_split_and_one_token_more_is(minilm_tokens: LocalTokens) -> None:
    fits = " ".join(["fox"] * BUDGET)
    assert len(chunk_spans(fits, minilm_tokens, BUDGET)) == 1
    assert len(chunk_spans(fits + " fox", minilm_tokens, BUDGET)) == 2


def test_neighbouring_chunks_share_text_and_are_of_like_length(minilm_tokens: LocalTokens) -> None:
    text = "A sentence about nothing much. " * 100
    chunks = chunk_spans(text, minilm_tokens, BUDGET)
    lengths = [chunk.end - chunk.start for chunk in chunks]
    assert all(before.end > after.start for before, after in pairwise(chunks))
    assert min(lengths) > max(lengths) / 2


def test_a_cut_falls_behind_a_sentence_where_one_ends_nearby(minilm_tokens: LocalTokens) -> None:
    text = "He walked home through the rain that night. " * 60
    for chunk in chunk_spans(text, minilm_tokens, BUDGET)[:-1]:
        assert text[: chunk.end].rstrip().endswith(".")


def test_a_long_word_is_cut_into_tokens_instead_of_becoming_one_unknown_token(minilm_tokens: LocalTokens) -> None:
    assert len(minilm_tokens.spans("ab12" * 200)) > 100
    assert len(chunk_spans("ab12" * 2000, minilm_tokens, BUDGET)) > 10


def test_the_overlap_is_kept_below_a_quarter_of_a_small_window() -> None:
    words = " ".join(f"w{number}" for number in range(200))
    chunks = chunk_spans(words, FakeTokens(), 16, overlap_tokens=OVERLAP_TOKENS)
    assert uncovered(words, chunks) == ""
    assert len(chunks) <= 200 / (16 - 4) * 1.5


def test_a_window_too_small_for_any_text_is_refused() -> None:
    with pytest.raises(ValueError, match="window"):
        chunk_spans("text", FakeTokens(), 7)
