"""Texts of tools: keys in brackets, and errors without words that clients take for their own."""

from hypothesis import given
from hypothesis import strategies as st

from loom.memory.v1 import memory_pb2, search_pb2
from loom_common.errors import KINDS, LoomError
from loom_gateway.mcp.errors import tool_error
from loom_gateway.mcp.summaries import READING_POINTER, READING_RULE, citation_key, key_of_citation, summary


@given(st.text(alphabet=st.sampled_from("ab]%5D0A2[\r\nv@é"), max_size=20) | st.text(max_size=20))
def test_a_key_survives_its_way_through_brackets(key: str) -> None:
    shown = citation_key(key)
    assert not set("]\r\n") & set(shown)
    assert key_of_citation(shown) == key


def test_an_ordinary_key_is_shown_as_it_is() -> None:
    assert citation_key("team/plan 100% [draft") == "team/plan 100% [draft"


def test_hits_are_told_in_their_order_with_date_key_kind_and_what_is_low() -> None:
    response = search_pb2.SearchResponse()
    first = memory_pb2.Memory(key="a", kind="fact", value="one", event_time="2024-01-02T00:00:00.000Z", speaker="Ann")
    second = memory_pb2.Memory(
        key="b", kind="note", value="two", updated_at="2026-11-30T13:05:00.000Z", value_truncated=True
    )
    response.memory.hits.add(memory=first)
    response.memory.hits.add(memory=second, low=True)
    text = summary(search_pb2.SearchRequest(query="q"), response, {})
    assert text.split("\n\n") == [
        "loom_search 'q': 2 memory hits.",
        READING_RULE,
        "[2024-01-02] [a] (fact) Ann: one",
        "[2026-11-30] [b] (note, low) two ...",
    ]


def test_a_client_that_was_told_how_to_read_is_reminded_in_one_line() -> None:
    response = search_pb2.SearchResponse()
    response.memory.hits.add(memory=memory_pb2.Memory(key="a", kind="fact", value="one"))
    text = summary(search_pb2.SearchRequest(query="q"), response, {}, rule=READING_POINTER)
    assert text.split("\n\n")[1] == READING_POINTER
    assert "\n" not in READING_POINTER
    assert len(READING_POINTER) < len(READING_RULE) / 3


def test_an_empty_search_needs_no_rule() -> None:
    response = search_pb2.SearchResponse()
    response.memory.abstain_code = "no_match"
    text = summary(search_pb2.SearchRequest(query="q"), response, {})
    assert text == "loom_search 'q': 0 memory hits (no_match)."


def test_every_reason_is_told_as_a_tools_error() -> None:
    for reason, kind in KINDS.items():
        error: LoomError = kind("What is wrong.")
        result = tool_error(error, "req-1")
        assert result.is_error
        assert result.structured_content is not None
        found = result.structured_content["error"]
        assert (found["code"], found["status"], found["request_id"]) == (reason.value, error.row.http, "req-1")
