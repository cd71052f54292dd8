"""Thresholds as they follow from cosines."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_embedding.app.corpora import built_in_corpora
from loom_embedding.domain.calibration import (
    DRIFT,
    CalibrationUnusable,
    Quantiles,
    cosines_of,
    derive_thresholds,
    own_quantiles,
    percentile,
    quantiles_of,
    texts_of,
)
from loom_embedding.domain.models import MINILM
from loom_embedding.domain.thresholds import Thresholds
from loom_embedding.providers.local import OnnxModel

ROOT = Path(__file__).parents[3]

Q = Quantiles(0.85, 0.92, 0.44, 0.58, 0.74, 0.24)

FEW = settings(max_examples=40)
# Kept apart, so that they can be told apart; what cannot be has a test of its own.
distractor_cosines = st.lists(st.floats(-1, 0.3), min_size=1, max_size=12)
question_cosines = st.lists(st.floats(-1, 1), min_size=1, max_size=12)
paraphrase_cosines = st.lists(st.floats(0.35, 1), min_size=1, max_size=12)


def thresholds(paraphrases: list[float], questions: list[float], distractors: list[float]) -> Thresholds:
    return derive_thresholds(quantiles_of(paraphrases, questions, distractors))


def test_each_threshold_is_what_the_table_says() -> None:
    assert derive_thresholds(Q) == Thresholds(
        noise_floor=0.26,
        abstain=0.31,
        query_rewrite=0.44,
        hyde_fallback=0.58,
        rerank_skip=0.74,
        conflict=0.85,
        duplicate=0.92,
    )


def test_questions_under_the_noise_leave_the_gates_above_it() -> None:
    found = derive_thresholds(Quantiles(0.85, 0.92, 0.05, 0.1, 0.2, 0.24))
    assert (found.query_rewrite, found.hyde_fallback, found.rerank_skip) == (0.27, 0.27, 0.27)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([3.0], 90, 3.0), ([0.0, 1.0], 50, 0.5), ([0.0, 1.0, 2.0, 3.0], 25, 0.75), ([2.0, 0.0, 1.0], 100, 2.0)],
)
def test_a_percentile_lies_between_the_two_closest_ranks(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == pytest.approx(expected)


@FEW
@given(paraphrase_cosines, question_cosines, distractor_cosines)
def test_the_gates_of_a_search_never_cross(
    paraphrases: list[float], questions: list[float], distractors: list[float]
) -> None:
    found = thresholds(paraphrases, questions, distractors)
    assert found.noise_floor < found.query_rewrite <= found.hyde_fallback <= found.rerank_skip <= 1
    assert found.noise_floor < found.abstain <= 1
    assert found.noise_floor <= found.conflict <= found.duplicate <= 1


@FEW
@given(paraphrase_cosines, question_cosines, distractor_cosines, st.floats(0, 0.03))
def test_nearer_distractors_never_lower_a_gate(
    paraphrases: list[float], questions: list[float], distractors: list[float], more: float
) -> None:
    before = thresholds(paraphrases, questions, distractors)
    after = thresholds(paraphrases, questions, [value + more for value in distractors])
    assert after.noise_floor >= before.noise_floor
    assert after.abstain >= before.abstain
    assert after.query_rewrite >= before.query_rewrite
    assert after.hyde_fallback >= before.hyde_fallback
    assert after.rerank_skip >= before.rerank_skip
    assert (after.conflict, after.duplicate) == (before.conflict, before.duplicate)


@FEW
@given(paraphrase_cosines, question_cosines, distractor_cosines)
def test_thresholds_do_not_depend_on_the_order_of_the_pairs(
    paraphrases: list[float], questions: list[float], distractors: list[float]
) -> None:
    found = thresholds(paraphrases, questions, distractors)
    assert thresholds(sorted(paraphrases), questions[::-1], sorted(distractors, reverse=True)) == found


@FEW
@given(paraphrase_cosines, question_cosines, st.floats(0, 1))
def test_pairs_that_a_model_cannot_tell_apart_give_no_thresholds(
    paraphrases: list[float], questions: list[float], above: float
) -> None:
    near = [percentile(paraphrases, 50) + above] * 3
    with pytest.raises(CalibrationUnusable):
        derive_thresholds(quantiles_of(paraphrases, questions, near))


def test_a_namespace_takes_its_questions_from_the_model() -> None:
    found = own_quantiles([0.9, 0.8], [0.1], Q)
    assert (found.paraphrase_p50, found.distractor_p90) == (pytest.approx(0.85), 0.1)
    assert (found.question_p10, found.question_p25, found.question_p75) == (0.44, 0.58, 0.74)


def test_a_hash_is_equal_for_equal_gates_of_one_model_and_only_for_them() -> None:
    one, other = derive_thresholds(Q), derive_thresholds(Quantiles(0.85, 0.93, 0.44, 0.58, 0.74, 0.24))
    assert one.digest("m") == derive_thresholds(Q).digest("m")
    assert len({one.digest("m"), one.digest("n"), other.digest("m")}) == 3
    assert one.drift(other) == pytest.approx(0.01)


def test_a_gate_that_moved_by_just_the_limit_has_drifted() -> None:
    one, other = (derive_thresholds(replace(Q, paraphrase_p75=cosine)) for cosine in (0.90, 0.95))
    assert one.drift(other) >= DRIFT  # though 0.95 - 0.90 is less in binary


def test_a_floor_that_rounds_to_one_gives_no_thresholds() -> None:
    with pytest.raises(CalibrationUnusable):
        derive_thresholds(replace(Q, paraphrase_p50=1.0, paraphrase_p75=1.0, distractor_p90=0.97996))


@pytest.mark.parametrize("damaged", [float("nan"), float("inf"), float("-inf"), 1.5, -7.0])
@pytest.mark.parametrize("quantile", list(asdict(Q)))
def test_a_row_that_holds_what_no_cosine_is_gives_no_thresholds(quantile: str, damaged: float) -> None:
    with pytest.raises(CalibrationUnusable):
        derive_thresholds(replace(Q, **{quantile: damaged}))


def test_the_built_in_pairs_are_many_in_many_languages_and_said_once() -> None:
    corpora = built_in_corpora()
    for pairs in (corpora.paraphrases, corpora.questions, corpora.distractors):
        assert len(pairs) >= 60
        assert len(set(pairs)) == len(pairs)
        assert all(pair.one.strip() and pair.other.strip() and pair.one != pair.other for pair in pairs)
        assert any(not pair.one.isascii() for pair in pairs)
    assert not set(corpora.distractors) & {*corpora.paraphrases, *corpora.questions}


def test_the_default_model_gets_the_thresholds_that_the_manual_states(minilm: OnnxModel) -> None:
    corpora = built_in_corpora()
    texts = texts_of(corpora.paraphrases, corpora.questions, corpora.distractors)
    rows = np.concatenate([minilm.embed_batch(texts[first : first + 32]) for first in range(0, len(texts), 32)])
    vectors = {text: row / np.linalg.norm(row) for text, row in zip(texts, rows.astype(np.float32), strict=True)}
    found = derive_thresholds(
        quantiles_of(
            cosines_of(corpora.paraphrases, vectors),
            cosines_of(corpora.questions, vectors),
            cosines_of(corpora.distractors, vectors),
        )
    )
    saved = json.loads((ROOT / "bench" / "results" / "gates.json").read_text("utf-8"))["models"][MINILM]["thresholds"]
    # Source: processors round differently in the last bits of a vector.
    assert asdict(found) == pytest.approx(saved, abs=0.005)
    cells = " | ".join(f"{value:.3f}" for value in saved.values())
    assert f"| `{MINILM}` | {cells} |" in (ROOT / "docs" / "operations" / "thresholds.md").read_text("utf-8")
