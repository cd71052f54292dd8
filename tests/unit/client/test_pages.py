"""Iterators over pages, by every way in which the contract reads on."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest

from loom_client import AsyncLoom, Loom, Overloaded
from loom_common.ops import all_ops

Handler = Callable[[httpx.Request], httpx.Response]
# `page` of `search.query` reads on in the memories alone, and its answer says where within them.
READ_ON = (("page_token", "next_page_token"), ("page", "next_page"), ("offset", "next_offset"))


def pages(*answers: Mapping[str, Any]) -> tuple[Handler, list[dict[str, Any]]]:
    sent: list[dict[str, Any]] = []
    left = iter(answers)

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200, json=next(left))

    return handle, sent


def loom(handle: Handler) -> Loom:
    return Loom("http://x", "t", http=httpx.Client(transport=httpx.MockTransport(handle)), max_attempts=1)


def twin(handle: Handler) -> AsyncLoom:
    return AsyncLoom("http://x", "t", http=httpx.AsyncClient(transport=httpx.MockTransport(handle)), max_attempts=1)


def test_every_paged_operation_has_an_iterator_in_both_clients() -> None:
    handle, _ = pages()
    for client in (loom(handle), twin(handle)):
        for name, op in all_ops().items():
            asked, told = ({field.name for field in part.fields} for part in (op.request, op.response))
            if op.role.name == "INTERNAL" or not any(here in asked and there in told for here, there in READ_ON):
                continue
            group, _, verb = name.partition(".")
            assert callable(getattr(getattr(client, group), f"{verb.replace('.', '_')}_all")), name


def test_a_list_is_read_to_its_end_and_no_page_before_it_is_needed() -> None:
    first = {"memories": [{"key": "a"}, {"key": "b"}], "next_page_token": "t2"}
    handle, sent = pages(first, {"memories": [{"key": "c"}], "next_page_token": ""})
    found = loom(handle).memory.list_all(page_size=2, kinds=["fact"])
    assert sent == []
    assert next(found).key == "a"
    assert len(sent) == 1
    assert [memory.key for memory in found] == ["b", "c"]
    assert sent[1] == {"page_size": 2, "kinds": ["fact"], "page_token": "t2"}


def test_a_search_is_read_on_by_its_handle() -> None:
    handle, sent = pages({"hits": [{"memory": {"key": "a"}}], "next_page": "h"}, {"hits": [], "next_page": ""})
    assert [hit.memory.key for hit in loom(handle).memory.search_all("q") if hit.memory] == ["a"]
    assert [(body["paging"], body.get("page")) for body in sent] == [(True, None), (True, "h")]


def test_a_long_text_is_read_slice_by_slice() -> None:
    handle, sent = pages({"found": True, "text": "ab", "next_offset": 2}, {"found": True, "text": "c"})
    assert "".join(loom(handle).knowledge.get_all("file.md")) == "abc"
    assert [body.get("offset") for body in sent] == [None, 2]


def test_an_error_ends_the_iteration_where_it_came() -> None:
    answers: Iterator[httpx.Response] = iter(
        [
            httpx.Response(200, json={"memories": [{"key": "a"}], "next_page_token": "t"}),
            httpx.Response(503, json={"error": {"code": "OVERLOADED", "message": "m"}}),
        ]
    )
    found = loom(lambda _: next(answers)).memory.list_all()
    assert next(found).key == "a"
    with pytest.raises(Overloaded):
        next(found)


async def test_the_async_iterators_answer_the_same() -> None:
    handle, sent = pages({"memories": [{"key": "a"}], "next_page_token": "t"}, {"memories": [{"key": "b"}]})
    async with twin(handle) as client:
        found = client.memory.list_all()
        assert inspect.isasyncgen(found)
        assert [memory.key async for memory in found] == ["a", "b"]
    assert [body.get("page_token") for body in sent] == [None, "t"]
