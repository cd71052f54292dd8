"""The Python client against a transport that answers as the gateway does."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest

from loom_client import AsyncLoom, Loom, LoomConfigError, LoomConnectionError, LoomError, MemoryInput

BASE = "http://gateway.test"
Answer = httpx.Response | Exception
MEMORY: Mapping[str, Any] = {"key": "k", "value": "tea", "version": 2, "tags": ["drinks"], "importance": 1}


def refusal(status: int, code: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    body = {"error": {"code": code, "message": "m", "status": status, "detail": {"a": 1}, "request_id": "r1"}}
    return httpx.Response(status, json=body, headers=headers)


def loom_answering(*answers: Answer, **options: Any) -> tuple[Loom, list[httpx.Request]]:
    sent: list[httpx.Request] = []
    left: Iterator[Answer] = iter(answers)

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    http = httpx.Client(transport=httpx.MockTransport(handle))
    return Loom(BASE, "token", http=http, **options), sent


def test_a_set_sends_only_what_was_given_and_reads_the_answer() -> None:
    loom, sent = loom_answering(httpx.Response(200, json={"key": "k", "version": 1, "stored": True}), namespace="team")
    done = loom.memory.set("tea", key="k", tags=["drinks"])
    assert (done.key, done.version, done.stored) == ("k", 1, True)
    assert json.loads(sent[0].content) == {"value": "tea", "key": "k", "tags": ["drinks"]}
    assert sent[0].url == f"{BASE}/v1/memory.set"
    assert sent[0].headers["authorization"] == "Bearer token"
    assert sent[0].headers["x-loom-namespace"] == "team"


def test_a_search_answers_typed_hits_and_passes_over_fields_of_a_newer_server() -> None:
    hit = {"memory": {**MEMORY, "colour": "red"}, "score": 1, "similarity": 0.5, "rank": 7}
    loom, _ = loom_answering(httpx.Response(200, json={"hits": [hit], "candidates_total": 1}))
    found = loom.memory.search("what to drink?")
    assert found.hits[0].memory is not None
    assert found.hits[0].memory.tags == ("drinks",)
    assert isinstance(found.hits[0].memory.importance, float)
    assert found.hits[0].similarity == 0.5


def test_set_many_takes_dataclasses_and_mappings() -> None:
    loom, sent = loom_answering(httpx.Response(200, json={"results": [], "ok_count": 2}))
    assert loom.memory.set_many([MemoryInput(value="a", key="x"), {"value": "b"}]).ok_count == 2
    items = json.loads(sent[0].content)["items"]
    assert items[0]["key"] == "x"
    assert items[1] == {"value": "b"}


def test_a_refusal_carries_reason_status_detail_and_request_id() -> None:
    loom, _ = loom_answering(refusal(409, "CONFLICT"))
    with pytest.raises(LoomError) as caught:
        loom.memory.set("tea")
    assert (caught.value.reason, caught.value.status) == ("CONFLICT", 409)
    assert caught.value.detail == {"a": 1}
    assert caught.value.request_id == "r1"


@pytest.mark.parametrize("reason", ["OVERLOADED", "BACKEND_UNAVAILABLE", "MODEL_CALL_DEFERRED", "MODEL_POLICY_UNREAD"])
def test_an_idempotent_operation_is_sent_again_for_a_reason_that_passes(reason: str) -> None:
    loom, sent = loom_answering(refusal(503, reason, {"Retry-After": "0"}), httpx.Response(200, json={"found": False}))
    assert loom.memory.get("k").found is False
    assert len(sent) == 2
    assert sent[0].headers["x-request-id"] == sent[1].headers["x-request-id"]


@pytest.mark.parametrize("reason", ["ANALYSIS_UNAVAILABLE", "ASSISTANT_UNAVAILABLE", "PROVIDER_FAILED", "RATE_LIMITED"])
def test_an_operation_is_not_sent_again_for_another_reason(reason: str) -> None:
    loom, sent = loom_answering(refusal(503, reason))
    with pytest.raises(LoomError):
        loom.memory.get("k")
    assert len(sent) == 1


def test_a_broken_connection_is_tried_again_only_where_that_is_safe() -> None:
    loom, sent = loom_answering(httpx.ReadError("reset"), httpx.Response(200, json={"found": True}))
    assert loom.memory.get("k").found
    assert len(sent) == 2
    loom, sent = loom_answering(httpx.ReadError("reset"))
    with pytest.raises(LoomConnectionError):
        loom.token.create([{"namespace": "default", "role": "viewer"}])
    assert len(sent) == 1


def test_a_write_that_expects_a_version_is_not_sent_again() -> None:
    calls: list[Callable[[Loom], object]] = [
        lambda loom: loom.memory.set("tea", key="k", expected_version=1),
        lambda loom: loom.memory.delete("k", expected_version=1),
        lambda loom: loom.memory.set_many([{"key": "k", "value": "tea", "expected_version": 1}]),
    ]
    for call in calls:
        loom, sent = loom_answering(httpx.ReadError("reset"))
        with pytest.raises(LoomConnectionError):
            call(loom)
        assert len(sent) == 1


def test_attempts_end_and_the_last_error_is_raised() -> None:
    loom, sent = loom_answering(*[httpx.ConnectError("no") for _ in range(2)], max_attempts=2)
    with pytest.raises(LoomConnectionError) as caught:
        loom.memory.get("k")
    assert caught.value.reason == "UNREACHABLE"
    assert len(sent) == 2


def test_a_timeout_is_not_waited_for_twice() -> None:
    loom, sent = loom_answering(httpx.ReadTimeout("slow"))
    with pytest.raises(LoomConnectionError) as caught:
        loom.memory.get("k")
    assert caught.value.reason == "TIMEOUT"
    assert len(sent) == 1


def test_an_answer_that_is_not_looms_is_said_to_be_so() -> None:
    loom, _ = loom_answering(httpx.Response(200, text="<html>"))
    with pytest.raises(LoomError) as caught:
        loom.memory.get("k")
    assert caught.value.reason == "INTERNAL"


@pytest.mark.parametrize("value", ["\ud800", float("nan"), object()])
def test_what_json_cannot_carry_is_refused_before_it_is_sent(value: Any) -> None:
    loom, sent = loom_answering()
    with pytest.raises(LoomError) as caught:
        loom.call("memory.set", {"value": value})
    assert caught.value.reason == "MALFORMED_REQUEST"
    assert sent == []


def test_a_client_without_a_token_or_with_a_bad_address_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOM_API_KEY", raising=False)
    with pytest.raises(LoomConfigError, match="LOOM_API_KEY"):
        Loom(BASE)
    with pytest.raises(LoomConfigError, match="http"):
        Loom("localhost:8080", "token")


async def test_the_async_client_sends_again_and_answers_as_the_sync_one() -> None:
    answers = iter([refusal(503, "OVERLOADED", {"Retry-After": "0"}), httpx.Response(200, json={"memories": [MEMORY]})])
    handle: Callable[[httpx.Request], httpx.Response] = lambda request: next(answers)  # noqa: E731
    async with AsyncLoom(BASE, "token", http=httpx.AsyncClient(transport=httpx.MockTransport(handle))) as loom:
        page = await loom.memory.list()
    assert page.memories[0].version == 2


def test_both_clients_have_the_same_operations() -> None:
    loom, _ = loom_answering()
    http = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: httpx.Response(200)))
    twin = AsyncLoom(BASE, "token", http=http)
    for group in ("memory", "search", "usage", "assistant", "token", "namespace"):
        names = {name for name in dir(getattr(loom, group)) if not name.startswith("_")}
        assert names == {name for name in dir(getattr(twin, group)) if not name.startswith("_")}
        assert names
