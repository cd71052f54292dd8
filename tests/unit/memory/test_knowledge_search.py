"""Which reranker runs, what stands where, and whose rules are shown."""

import pytest

from loom_common.auth.claims import Claims
from loom_memory.knowledge.app.agents import agent_of
from loom_memory.knowledge.app.search import KnowledgeSearch
from loom_memory.knowledge.domain.chunks import ChunkPlace
from loom_memory.knowledge.domain.documents import DocumentFilter
from loom_memory.knowledge.domain.ranking import Candidate, rank


@pytest.mark.parametrize(
    ("asked", "default", "llm_free", "used"),
    [
        (None, "", False, ("", False)),
        (None, "bge", False, ("bge", False)),
        (None, "bge", True, ("", False)),
        ("none", "bge", False, ("", True)),
        ("jina", "bge", True, ("jina", True)),
        ("builtin:openai", "", False, ("builtin:openai", True)),
        ("builtin:openai", "", True, ("", True)),
        ("builtin:openai:gpt-x", "", True, ("", True)),
        ("builtin:cohere", "", True, ("builtin:cohere", True)),
    ],
)
def test_a_reranker_runs_where_it_is_named_and_no_language_model_where_reads_call_none(
    asked: str | None, default: str, llm_free: bool, used: tuple[str, bool]
) -> None:
    search = KnowledgeSearch(
        None, None, None, None, None, None, None, rerank_default=default, reads_llm_free=llm_free,  # type: ignore[arg-type]  # not used
    )  # fmt: skip
    assert search.reranker(asked) == used


def test_noise_stands_below_what_answers_and_above_what_hardly_does() -> None:
    def candidate(name: str, cosine: float, share: float = 0.0) -> Candidate:
        return Candidate(ChunkPlace(name, 1, 0), 0, cosine, share, share)

    close, noise, low = candidate("close", 0.6), candidate("noise", 0.9, 0.9), candidate("low", 0.25)
    ranked = rank([low, noise, close], {noise.place}, noise_floor=0.2)
    assert [each.candidate.place.source_uri for each in ranked] == ["close", "noise", "low"]
    assert [each.is_low for each in ranked] == [False, False, True]
    assert rank([], set(), noise_floor=0.2) == []


def test_a_whole_identifier_outranks_every_looser_match() -> None:
    exact = Candidate(ChunkPlace("exact", 1, 0), 0, None, 1.0, 0.1, True)
    near = Candidate(ChunkPlace("near", 1, 0), 0, 0.9, 1.0, 0.9)
    assert rank([near, exact], set(), noise_floor=0.2)[0].candidate is exact


@pytest.mark.parametrize(
    ("subject", "agent"), [("sa:ci:coder", "coder"), ("sa:bot", ""), ("ana@example.com", ""), ("sa:t:a:b", "a:b")]
)
def test_the_agent_of_a_token_is_the_last_part_of_its_subject(subject: str, agent: str) -> None:
    assert agent_of(Claims(subject, "acme", (), "t", 0, 1)) == agent


def test_a_filter_admits_the_rules_of_its_agent_and_those_that_its_labels_name() -> None:
    assert DocumentFilter(agent="coder").agent_tags == ("agent:coder",)
    assert DocumentFilter(agent="", tags=("hr", "agent:x")).agent_tags == ("agent:x",)
    assert DocumentFilter(agent="").agent_tags == ()
