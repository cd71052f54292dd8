"""Addresses of resources, and cursors over lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, PaginatedRequestParams

from loom_gateway.mcp import paging
from loom_gateway.mcp.resource_uris import ResourceUri, parse_uri

names = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(names, names, st.dictionaries(st.sampled_from(["user_id", "session_id"]), names))
def test_an_address_survives_being_written_and_read(namespace: str, key: str, facts: dict[str, str]) -> None:
    uri = ResourceUri("memory", namespace, key, facts)
    text = str(uri)
    assert text.isascii()
    assert not set(' <>"{}|\\^`\r\n') & set(text)
    assert parse_uri(text) == uri


def test_a_key_whose_slashes_were_not_encoded_is_read_as_it_was_meant() -> None:
    assert parse_uri("loom://memory/team-a/release/day") == ResourceUri("memory", "team-a", "release/day")
    assert str(ResourceUri("memory", "team-a", "release/day")) == "loom://memory/team-a/release%2Fday"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "loom:",
        "loom://memory",
        "loom://memory/team-a",
        "loom://memory//k",
        "https://memory/team-a/k",
        "loom://memory/team-a/%ff",
        "loom://memory/team-a/k?user_id=%ff",
        "loom://memory/team-a/" + "k" * 70_000,
        "loom://memory/team-a/k?" + "&".join(f"a{n}=1" for n in range(20)),
    ],
)
def test_what_is_no_address_of_ours_is_none(text: str) -> None:
    assert parse_uri(text) is None


def walked(items: list[int]) -> list[int]:
    found: list[int] = []
    cursor: str | None = None
    while True:
        page, cursor = paging.page(items, PaginatedRequestParams(cursor=cursor) if cursor else None)
        assert len(page) <= paging.PAGE_SIZE
        found += page
        if cursor is None:
            return found


@pytest.mark.parametrize("count", [0, 1, paging.PAGE_SIZE, paging.PAGE_SIZE + 1, 3 * paging.PAGE_SIZE])
def test_pages_hold_every_item_once_in_order(count: int) -> None:
    assert walked(list(range(count))) == list(range(count))


@pytest.mark.parametrize(
    "cursor",
    ["x", "é", "W10", "a" * 9_000, *map(paging.encode, ("a", -1, 10_000, 0)), paging.encode(1, 2)],
)
def test_a_cursor_that_was_made_up_is_the_protocols_error(cursor: str) -> None:
    with pytest.raises(MCPError) as caught:
        paging.page(list(range(200)), PaginatedRequestParams(cursor=cursor))
    assert caught.value.code == INVALID_PARAMS
