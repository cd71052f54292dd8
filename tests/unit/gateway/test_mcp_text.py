"""Texts of tools: the count line and clauses of a search, and errors without words that clients take for their own."""

from typing import Any

import jsonschema
import pytest

from loom.memory.v1 import search_pb2
from loom_common.errors import KINDS, LoomError
from loom_gateway.contract.answers import render
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.mcp.errors import tool_error
from loom_gateway.mcp.lean import structured
from loom_gateway.mcp.summaries import READING_POINTER, READING_RULE, has_rule, summary
from loom_gateway.mcp.toolsets import Toolset, tools_of
from loom_memory.domain.fencing import unfenced
from loom_memory.domain.reader import block


def searched(**more: Any) -> search_pb2.SearchResponse:
    return search_pb2.SearchResponse(**more)


def told(response: search_pb2.SearchResponse, query: str = "q", rule: str = READING_RULE) -> list[str]:
    return summary(search_pb2.SearchRequest(query=query), response, {}, rule=rule).split("\n\n")


def one_of_each() -> search_pb2.SearchResponse:
    response = searched()
    for name, label in (
        ("memory", "memories"),
        ("profile", "profile"),
        ("knowledge", "documents"),
        ("conversations", "conversations"),
    ):
        section = getattr(response, name)
        section.hits.add()
        section.rendered = block(label, [f"[2026-11-30] [{name}] (x) y"])
    return response


@pytest.mark.parametrize(
    ("memories", "turns", "line"),
    [
        (1, 0, "loom_search 'when can we deploy?': 1 memory, 0 profile, 0 knowledge, 0 conversation hit."),
        (0, 1, "loom_search 'when can we deploy?': 0 memory, 0 profile, 0 knowledge, 1 conversation hit."),
        (0, 0, "loom_search 'when can we deploy?': 0 memory, 0 profile, 0 knowledge, 0 conversation hits."),
        (2, 1, "loom_search 'when can we deploy?': 2 memory, 0 profile, 0 knowledge, 1 conversation hits."),
    ],
)
def test_a_search_is_told_by_its_counts_first(memories: int, turns: int, line: str) -> None:
    response = searched()
    for _ in range(memories):
        response.memory.hits.add()
    for _ in range(turns):
        response.conversations.hits.add()
    assert told(response, "when can we deploy?")[0] == line


def test_a_long_question_does_not_fill_the_count_line() -> None:
    assert len(told(searched(), "why " * 2_000)[0]) < 300


def test_the_rule_stands_once_before_every_part_that_has_hits_in_their_order() -> None:
    _, rule, *parts = told(one_of_each())
    assert rule == READING_RULE
    assert [part.split()[1] for part in parts] == ["memories", "documents", "profile", "conversations"]
    assert unfenced(parts[0], "memories") == ["[2026-11-30] [memory] (x) y"]
    # The part's own line on reading it is told by the rule already.
    assert all(part.startswith("<<data ") for part in parts)


def test_a_trackers_verdict_leads() -> None:
    response = one_of_each()
    response.tracker.rendered = block("tracker", ["[LOOM-12] (duplicate, open) Export fails"])
    assert told(response)[2].startswith("<<data tracker ")


def test_a_client_that_was_told_how_to_read_is_reminded_in_one_line() -> None:
    assert told(one_of_each(), rule=READING_POINTER)[1] == READING_POINTER
    assert "\n" not in READING_POINTER
    assert len(READING_POINTER) < len(READING_RULE) / 3


def test_an_empty_search_needs_no_rule_and_says_why_it_is_empty() -> None:
    response = searched()
    response.memory.abstain_code = "no_match"
    assert not has_rule(response)
    assert told(response)[1:] == ["Memory has no hit: no_match."]


def test_what_was_withheld_could_not_be_read_or_follows_is_a_clause_at_the_end() -> None:
    response = one_of_each()
    response.withheld.precision_floor = 2
    response.withheld.conversations = 1
    response.profile.error = "BACKEND_UNAVAILABLE"
    response.repository_error = "DEADLINE_EXCEEDED"
    response.memory.next_page = "abc.5"
    assert told(response)[-3:] == [
        "Could not be read: profile (BACKEND_UNAVAILABLE), the repository (DEADLINE_EXCEEDED). "
        "What they hold is not in this answer.",
        "Withheld: 2 under the precision floor, 1 of conversations. explain=true shows them.",
        "More memories match. For a list or a count, call again with page='abc.5'.",
    ]


def test_every_rule_that_withholds_has_its_words() -> None:
    response = searched()
    for field in response.withheld.DESCRIPTOR.fields:
        setattr(response.withheld, field.name, 1)
    assert told(response)[1].count(",") == len(response.withheld.DESCRIPTOR.fields) - 1


def test_a_lean_answer_leaves_out_what_is_empty_and_the_texts_and_still_fits_the_tools_schema() -> None:
    response = one_of_each()
    response.memory.hits[0].memory.key = "k"
    response.memory.hits[0].similarity = 0.0
    response.memory.candidates_total = 1
    response.knowledge.error = "BACKEND_UNAVAILABLE"
    lean = structured(search_pb2.SearchRequest(query="q"), response)
    assert lean == {
        "memory": {"hits": [{"memory": {"key": "k"}, "similarity": 0.0}], "candidates_total": 1},
        "profile": {"hits": [{}]},
        "knowledge": {"hits": [{}], "error": "BACKEND_UNAVAILABLE"},
        "conversations": {"hits": [{}]},
    }
    schema = tools_of(Catalogue(), Toolset.DEFAULT)["loom_search"].tool.output_schema
    assert schema is not None
    jsonschema.validate(lean, schema)
    jsonschema.validate(render(response), schema)


def test_a_search_that_is_asked_to_explain_is_told_in_whole() -> None:
    response = one_of_each()
    assert structured(search_pb2.SearchRequest(query="q", explain=True), response) == render(response)


def test_every_reason_is_told_as_a_tools_error() -> None:
    for reason, kind in KINDS.items():
        error: LoomError = kind("What is wrong.")
        result = tool_error(error, "req-1")
        assert result.is_error
        assert result.structured_content is not None
        found = result.structured_content["error"]
        assert (found["code"], found["status"], found["request_id"]) == (reason.value, error.row.http, "req-1")
