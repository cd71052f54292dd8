"""Rankings, labels and names of rerankers, as rules."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_llm.domain.endpoints import ClassifyEndpoint, RerankEndpoint
from loom_llm.domain.labels import Label, UnreadableLabels, labels_of
from loom_llm.domain.ranking import (
    Ranked,
    Spent,
    UnreadableRanking,
    by_shared_words,
    given_order,
    listwise,
    ranking_of,
)
from loom_llm.domain.rerankers import RerankerName, parse_reranker
from loom_llm.providers.endpoints import Address, classify_body, read_rerank, rerank_body

ADDRESS = Address("http://reranker:8080/rerank")


def order(results: tuple[Ranked, ...]) -> list[int]:
    return [one.index for one in results]


def test_a_ranking_is_best_first_and_equals_stand_as_they_came() -> None:
    assert order(ranking_of([(2, 0.5), (0, 0.1), (1, 0.5)], 3)) == [1, 2, 0]
    assert ranking_of([(0, 1.0005), (1, -0.0005)], 2) == (Ranked(0, 1.0), Ranked(1, 0.0))


@pytest.mark.parametrize(
    "entries",
    [
        [(0, 0.5)],
        [(0, 0.5), (0, 0.4)],
        [(0, 0.5), (1, 0.5), (1, 0.5)],
        [(0, 0.5), (2, 0.4)],
        [(0, 0.5), (-1, 0.4)],
        [(0, 0.5), ("1", 0.4)],
        [(False, 0.5), (True, 0.4)],
        [(0, 0.5), (1.0, 0.4)],
        [(0, 0.5), (1, math.nan)],
        [(0, 0.5), (1, math.inf)],
        [(0, 0.5), (1, 7.3)],
        [(0, 0.5), (1, -2.0)],
        [(0, 0.5), (1, 10**400)],
        [(0, 0.5), (1, "0.4")],
        [(0, 0.5), (1, None)],
        [(0, 0.5), (1, True)],
    ],
)
def test_what_does_not_score_each_document_once_is_no_ranking(entries: list[tuple[object, object]]) -> None:
    with pytest.raises(UnreadableRanking):
        ranking_of(entries, 2)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_scores_without_bounds_come_between_0_and_1_in_their_order(logits: list[float]) -> None:
    results = ranking_of(list(enumerate(logits)), len(logits), logits=True)
    assert all(0 <= one.score <= 1 for one in results)
    scores = [one.score for one in sorted(results, key=lambda one: (logits[one.index], one.index))]
    assert scores == sorted(scores)


@pytest.mark.parametrize(
    ("said", "ranked"),
    [
        ([{"index": 1, "score": 0.9}, {"index": 0, "score": 0.2}, {"index": 2, "score": 0.4}], [1, 2, 0]),
        # Forgotten, invented, doubled and broken ones.
        ([{"index": 2, "score": 0.9}], [2, 0, 1]),
        ([{"index": 9, "score": 1}, {"index": 1, "score": 0.3}, {"index": 1, "score": 1}], [1, 0, 2]),
        (["x", {"index": 0}, {"index": 1, "score": "high"}, {"index": 2, "score": 0.1}], [2, 0, 1]),
    ],
)
def test_what_a_model_gets_wrong_is_passed_over(said: list[object], ranked: list[int]) -> None:
    assert order(listwise({"results": said}, 3)) == ranked


@pytest.mark.parametrize(
    "value", [{}, {"results": None}, {"results": {}}, {"results": []}, {"results": [{"index": 7}]}]
)
def test_a_models_answer_without_one_score_is_no_ranking(value: dict[str, object]) -> None:
    with pytest.raises(UnreadableRanking):
        listwise(value, 3)


def test_the_given_order_has_falling_scores_above_0() -> None:
    assert given_order(4) == (Ranked(0, 1.0), Ranked(1, 0.75), Ranked(2, 0.5), Ranked(3, 0.25))


def test_the_fake_counts_shared_words() -> None:
    documents = ["nothing", "Blue cars are FAST", "fast"]
    assert by_shared_words("fast cars", documents) == (Ranked(1, 1.0), Ranked(2, 0.5), Ranked(0, 0.0))
    assert order(by_shared_words("?", documents)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("builtin:openai", RerankerName("openai")),
        ("builtin:openai:gpt-6-sol", RerankerName("openai", "gpt-6-sol")),
        ("builtin:openai:org/model:tag", RerankerName("openai", "org/model:tag")),
        ("builtin:cohere", RerankerName("cohere", "rerank-v4.0-fast")),
        ("builtin:cohere:rerank-v3.5", RerankerName("cohere", "rerank-v3.5")),
        ("bge", RerankerName("endpoint", "bge")),
    ],
)
def test_a_name_stands_for_a_reranker(name: str, read: RerankerName) -> None:
    assert parse_reranker(name) == read


@pytest.mark.parametrize("name", ["builtin:", "builtin:jina", "builtin:openai:", f"builtin:cohere:{'x' * 129}"])
def test_a_name_that_only_looks_built_in_is_none(name: str) -> None:
    with pytest.raises(ValueError, match=r"built in|missing"):
        parse_reranker(name)


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        (RerankEndpoint(ADDRESS, "cohere", "m"), {"model": "m", "query": "q", "documents": ["a", "b"], "top_n": 2}),
        (
            RerankEndpoint(ADDRESS, "jina", "m"),
            {"model": "m", "query": "q", "documents": ["a", "b"], "top_n": 2, "return_documents": False},
        ),
        (RerankEndpoint(ADDRESS, "tei"), {"query": "q", "texts": ["a", "b"], "raw_scores": False, "truncate": True}),
    ],
)
def test_each_format_has_its_own_words(endpoint: RerankEndpoint, body: dict[str, object]) -> None:
    assert rerank_body(endpoint, "q", ["a", "b"]) == body


@pytest.mark.parametrize(
    ("answer", "spent"),
    [
        ([{"index": 1, "score": 0.9}, {"index": 0, "score": 0.1}], Spent()),
        (
            {
                "results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}],
                "meta": {"billed_units": {"search_units": 1.0}},
            },
            Spent(searches=1),
        ),
        (
            {
                "results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}],
                "usage": {"total_tokens": 38},
            },
            Spent(tokens=38),
        ),
        (
            {
                "results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}],
                "usage": {"total_tokens": -3},
                "meta": {"billed_units": "many"},
            },
            Spent(),
        ),
    ],
)
def test_the_answers_of_all_formats_are_read(answer: object, spent: Spent) -> None:
    scored = read_rerank(answer, RerankEndpoint(ADDRESS, "cohere", "m"), 2)
    assert (scored.results, scored.spent) == ((Ranked(1, 0.9), Ranked(0, 0.1)), spent)


@pytest.mark.parametrize("answer", [None, 1, "text", {}, {"results": {}}, {"results": ["x"]}, [[{"index": 0}]]])
def test_an_answer_that_is_no_list_of_results_is_no_ranking(answer: object) -> None:
    with pytest.raises(UnreadableRanking):
        read_rerank(answer, RerankEndpoint(ADDRESS), 1)


LEGAL: dict[str, Any] = {"label": " legal ", "score": 0.93}


@pytest.mark.parametrize("answer", [[LEGAL], [[LEGAL]], {"labels": [LEGAL]}, [LEGAL, {"label": "other", "score": 0.2}]])
def test_labels_that_reach_the_score_are_read_in_every_shape(answer: object) -> None:
    assert labels_of(answer, 0.5) == (Label("legal", 0.93),)


def test_labels_are_best_first_and_at_most_as_many_as_tags() -> None:
    many = [{"label": f"l{at:03}", "score": at / 100} for at in range(100)]
    labels = labels_of(many, 0.0)
    assert (labels[0].label, len(labels)) == ("l099", 32)
    assert labels_of([], 0.5) == ()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "legal",
        {},
        {"labels": {}},
        ["legal"],
        [LEGAL, LEGAL],
        [{"label": "", "score": 1}],
        [{"label": "x" * 65, "score": 1}],
        [{"label": "a\nb", "score": 1}],
        [{"label": 3, "score": 1}],
        [{"label": "x", "score": math.nan}],
        [{"label": "x", "score": 1.5}],
        [{"label": "x", "score": True}],
        [{"label": "x"}],
        [{"label": f"l{at}", "score": 0.1} for at in range(1001)],
    ],
)
def test_what_holds_no_labels_is_refused(answer: object) -> None:
    with pytest.raises(UnreadableLabels):
        labels_of(answer, 0.5)


def test_a_classifier_gets_the_text_and_its_model_where_it_has_one() -> None:
    assert classify_body(ClassifyEndpoint(ADDRESS), "t") == {"inputs": "t", "truncate": True}
    assert classify_body(ClassifyEndpoint(ADDRESS, "m"), "t") == {"inputs": "t", "truncate": True, "model": "m"}
