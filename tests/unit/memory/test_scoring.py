import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_memory.domain.analyzer import analyze_query, analyze_text
from loom_memory.domain.scoring import MATCH, LexicalMatch, LexicalStatistics, is_good, lexical_match, score

FLOOR = 0.2
_COSINE = st.floats(-1, 1)
_SHARE = st.floats(0, 1)


def _matches(query_text: str, notes: list[str]) -> list[LexicalMatch]:
    query = analyze_query(query_text)
    analyzed = [analyze_text(note) for note in notes]
    statistics = LexicalStatistics(
        rows=len(notes),
        mean_dl=sum(text.dl for text in analyzed) / len(notes),
        df=[sum(term in text.term_ids for text in analyzed) for term in query.term_ids],
    )
    return [lexical_match(query, text.term_ids, text.dl, statistics) for text in analyzed]


def test_one_term_in_one_of_two_rows_has_the_bm25_worked_out_by_hand() -> None:
    coffee, reads = _matches("coffee", ["coffee every morning", "reads at night"])
    idf = math.log(1 + (2 - 1 + 0.5) / 1.5)
    length = 1 - 0.75 + 0.75 * 3 / 2.5
    assert coffee.bm25 == pytest.approx(idf * 2.2 / (1 + 1.2 * length), rel=1e-9)
    assert coffee.share == pytest.approx(0.8)
    assert reads == LexicalMatch(0.0, 0.0, False)


def test_a_term_that_no_row_holds_lowers_every_share() -> None:
    known = _matches("coffee", ["coffee every morning", "reads at night"])[0]
    unknown = _matches("coffee tungsten", ["coffee every morning", "reads at night"])[0]
    assert unknown.share < known.share / 2


def test_a_whole_identifier_is_exact_and_a_part_is_not() -> None:
    whole, part = _matches("ZX-4417-Q", ["order ZX-4417-Q arrived", "order 4417 arrived"])
    assert (whole.exact, part.exact) == (True, False)
    assert whole.bm25 > part.bm25
    assert whole.share > part.share


def test_a_query_without_terms_matches_nothing() -> None:
    assert _matches("?!", ["coffee"]) == [LexicalMatch(0.0, 0.0, False)]


@given(_COSINE, _COSINE, _SHARE, _SHARE)
def test_the_score_is_within_bounds_and_rises_with_both(
    cosine: float, more: float, share: float, fuller: float
) -> None:
    low, high = sorted((cosine, more))
    few, many = sorted((share, fuller))
    lower, higher = score(low, few, noise_floor=FLOOR), score(high, many, noise_floor=FLOOR)
    assert 0 <= lower <= higher <= 1


@given(_COSINE, _SHARE)
def test_a_leg_that_did_not_run_counts_as_no_evidence(cosine: float, share: float) -> None:
    assert score(None, share, noise_floor=FLOOR) == pytest.approx(share)
    assert score(cosine, None, noise_floor=FLOOR) == score(cosine, 0.0, noise_floor=FLOOR)


def test_unrelated_pairs_score_nothing_and_are_no_match() -> None:
    # Unrelated pairs of MiniLM measured -0.07 to 0.15.
    assert score(0.15, 0.0, noise_floor=FLOOR) == 0 < MATCH


@pytest.mark.parametrize(("cosine", "share"), [(0.45, 0.0), (None, 0.8), (0.35, 0.2)])
def test_either_kind_of_evidence_or_some_of_both_is_a_match(cosine: float | None, share: float) -> None:
    assert score(cosine, share, noise_floor=FLOOR) >= MATCH


@pytest.mark.parametrize(
    ("own", "best", "good"), [(0.12, 0.12, True), (0.11, 0.11, False), (0.4, 0.9, True), (0.35, 0.9, False)]
)
def test_a_good_hit_is_good_by_itself_and_beside_the_best(own: float, best: float, good: bool) -> None:
    assert is_good(own, best) is good
