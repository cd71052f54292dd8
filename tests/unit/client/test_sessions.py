"""Packs, sessions and calls by name."""

import json
from typing import Any

import httpx
import pytest

from loom_client import AsyncLoom, Loom, Session
from loom_client._generated.types import PackContextResponse

PACK = {"rendered": "stable-ü|volatile", "stable_prefix_chars": 9, "stable_hash": "h", "tokens_estimate": 5}


def transport(answer: dict[str, Any]) -> tuple[httpx.MockTransport, list[tuple[str, dict[str, Any]]]]:
    sent: list[tuple[str, dict[str, Any]]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append((request.url.path.removeprefix("/v1/"), json.loads(request.content)))
        return httpx.Response(200, json=answer)

    return httpx.MockTransport(handle), sent


def client(answer: dict[str, Any]) -> tuple[Loom, list[tuple[str, dict[str, Any]]]]:
    made, sent = transport(answer)
    return Loom("http://x", "t", http=httpx.Client(transport=made)), sent


def test_a_pack_is_split_where_its_stable_part_ends() -> None:
    loom, sent = client(PACK)
    pack = loom.context.pack("fix the flaky export test", mode="task", include_knowledge=True)
    assert (pack.stable_prefix, pack.volatile_suffix) == ("stable-ü|", "volatile")
    assert pack.stable_prefix + pack.volatile_suffix == pack.rendered
    assert "stable_prefix" not in pack.to_json()
    wanted = {"query": "fix the flaky export test", "mode": "task", "include_knowledge": True}
    assert sent == [("context.pack", wanted)]
    assert PackContextResponse().stable_prefix == ""


def test_a_session_packs_for_itself_and_parks_texts_under_its_own_names() -> None:
    loom, sent = client({**PACK, "blob_key": "k", "pointer": "[k]", "found": True, "text": "x"})
    session = loom.open_session("s-1", user_id="ana")
    assert session.pack("next step", token_budget=500).stable_hash == "h"
    assert session.offload("a long log").pointer == "[k]"
    session.offload("a long log", name="tests.log", summary="tests", ttl_seconds=60)
    session.fetch("k", pattern="error", context_lines=2)
    session.fetch(name="tests.log")
    assert list(session.fetch_all(name="tests.log")) == ["x"]
    assert sent == [
        ("context.pack", {"query": "next step", "session_id": "s-1", "user_id": "ana", "token_budget": 500}),
        ("context.offload", {"content": "a long log"}),
        (
            "context.offload",
            {"content": "a long log", "blob_key": "session/s-1/tests.log", "summary": "tests", "ttl_seconds": 60},
        ),
        ("context.fetch", {"blob_key": "k", "pattern": "error", "context_lines": 2}),
        ("context.fetch", {"blob_key": "session/s-1/tests.log"}),
        ("context.fetch", {"blob_key": "session/s-1/tests.log"}),
    ]
    with pytest.raises(ValueError, match="key"):
        session.fetch()


async def test_an_async_session_sends_the_same() -> None:
    answer = {**PACK, "blob_key": "k", "found": True, "text": "x"}
    plain, sent_plain = client(answer)
    made, sent = transport(answer)
    async with AsyncLoom("http://x", "t", http=httpx.AsyncClient(transport=made)) as loom:
        session = loom.open_session("s-1")
        await session.pack("q")
        await session.offload("text", name="n")
        await session.fetch(name="n", limit=10)
        assert [part async for part in session.fetch_all("k")] == ["x"]
    twin = Session(plain, "s-1")
    twin.pack("q")
    twin.offload("text", name="n")
    twin.fetch(name="n", limit=10)
    assert list(twin.fetch_all("k")) == ["x"]
    assert sent == sent_plain


def test_a_call_by_name_takes_a_body_and_fields_and_is_sent_again_where_its_method_would_be() -> None:
    answers = [httpx.ReadError("reset"), httpx.Response(200, json={"found": True}), httpx.ReadError("reset")]
    sent: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    loom = Loom("http://x", "t", http=httpx.Client(transport=httpx.MockTransport(handle)))
    assert loom.call("memory.get", {"key": "k"}, user_id="ana", session_id=None) == {"found": True}
    assert [json.loads(request.content) for request in sent] == [{"key": "k", "user_id": "ana"}] * 2
    with pytest.raises(Exception, match="UNREACHABLE"):
        loom.call("of_a.newer_server")
    assert len(sent) == 3
