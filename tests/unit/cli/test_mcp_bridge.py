"""`loom mcp`: what passes between a client's pipes and a gateway, and what does not get through."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from loom_cli.console import CommandError
from loom_cli.mcp_bridge import Bridge
from loom_cli.mcp_gateway import Gateway, Target, Unreached


class Way:
    """Answers each message with itself, once it may."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.held = asyncio.Event()
        self.begun = asyncio.Event()
        self.ended: list[Any] = []

    async def send(self, message: Any, line: bytes) -> AsyncIterator[Any]:
        self.seen.append(message.get("method"))
        if message.get("method") == "away":
            raise Unreached("no Loom answers")
        if message.get("method") == "slow":
            self.begun.set()
            try:
                await self.held.wait()
            except asyncio.CancelledError:
                self.ended.append(message["id"])
                raise
        if "id" in message:
            yield {"jsonrpc": "2.0", "id": message["id"], "result": {}}


def request(identifier: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}


async def served(way: Way, *messages: Any) -> list[Any]:
    written: list[Any] = []

    async def lines() -> AsyncIterator[bytes]:
        for message in messages:
            if isinstance(message, asyncio.Event):
                await message.wait()
            else:
                yield message if isinstance(message, bytes) else json.dumps(message).encode()

    async with asyncio.timeout(30):
        await Bridge(way, written.append).serve(lines())
    return written


async def test_every_request_is_answered_and_a_notification_is_not() -> None:
    way = Way()
    written = await served(way, request(1, "a"), {"jsonrpc": "2.0", "method": "n"}, b"\n", request("x", "b"))
    assert [answer["id"] for answer in written] == [1, "x"]
    assert way.seen == ["a", "n", "b"]


async def test_a_slow_request_does_not_hold_up_the_next_and_its_client_may_cancel_it() -> None:
    way = Way()
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    written = await served(way, request(1, "slow"), way.begun, request(2, "a"), cancel)
    assert [answer["id"] for answer in written] == [2]
    assert way.ended == [1]


async def test_what_agrees_on_a_version_is_answered_before_the_next_message_is_sent() -> None:
    way = Way()
    order: list[str] = []

    class Ordered(Way):
        async def send(self, message: Any, line: bytes) -> AsyncIterator[Any]:
            order.append(f"{message['method']} begins")
            await asyncio.sleep(0)
            order.append(f"{message['method']} ends")
            async for answer in way.send(message, line):
                yield answer

    await served(Ordered(), request(1, "initialize"), request(2, "a"))
    assert order == ["initialize begins", "initialize ends", "a begins", "a ends"]


@pytest.mark.parametrize("line", [b"x", b"[]", b"5", b"\xff", b"[" * 100_000])
async def test_a_line_that_is_no_message_is_a_parse_error(line: bytes) -> None:
    (answer,) = await served(Way(), line)
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)


async def test_what_is_not_answered_is_an_error_of_the_request() -> None:
    (answer,) = await served(Way(), request(7, "away"), {"jsonrpc": "2.0", "method": "away"})
    assert (answer["id"], answer["error"]["message"]) == (7, "no Loom answers")


class Served:
    """What a gateway at an address answers to a token, and what it was sent."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.seen: list[httpx.Request] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        if str(request.url) != f"{self.url}/mcp":
            raise httpx.ConnectError("refused")
        if request.headers["authorization"] != f"Bearer {self.token}":
            return httpx.Response(401, json={"error": {"code": "TOKEN_REVOKED", "message": "ended"}})
        message = json.loads(request.content)
        if message["method"] == "initialize":
            result = {"protocolVersion": "2025-11-25"}
            return httpx.Response(
                200, json={"jsonrpc": "2.0", "id": 1, "result": result}, headers={"Mcp-Session-Id": "s"}
            )
        if message["method"] == "stream":
            body = 'event: message\r\ndata: {"n": 1}\r\n\r\n: ping\r\n\r\ndata: {"n":\ndata: 2}\n\n'
            body += 'data: {"n": "\u2028\x85"}\n\n'
            return httpx.Response(200, text=body, headers={"Content-Type": "text/event-stream"})
        if message["method"] == "unread":
            return httpx.Response(400, json={"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no"}})
        if message["method"] == "refused":
            return httpx.Response(403, json={"error": {"code": "AUTH_INSUFFICIENT", "message": "not here"}})
        return httpx.Response(202)


async def sent(way: Gateway, message: Any) -> list[Any]:
    return [answer async for answer in way.send(message, json.dumps(message).encode())]


async def test_a_loom_that_was_started_anew_is_found_again() -> None:
    places = [Target("http://old", "t1"), Target("http://new", "t2"), Target("http://new", "t3")]
    for before, after in (places[:2], places[1:]):
        served, found = Served(after.url, after.token), iter([before, after])
        async with Gateway(lambda found=found: next(found), {}, httpx.MockTransport(served)) as way:  # type: ignore[misc]  # bound now
            assert await sent(way, {"method": "n"}) == []
        assert len(served.seen) == 2


async def test_a_loom_that_another_message_found_again_is_found_again_by_all() -> None:
    old, new = Target("http://old", "t1"), Target("http://new", "t2")
    served = Served(new.url, new.token)
    both_left, refused = asyncio.Event(), 0

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal refused
        if request.url.host == "old":
            refused += 1
            if refused == 2:
                both_left.set()
            await both_left.wait()
        return await served(request)

    places = [old, new, new]
    async with asyncio.timeout(30), Gateway(lambda: places.pop(0), {}, httpx.MockTransport(answer)) as way:
        assert await asyncio.gather(*(sent(way, {"method": "n"}) for _ in range(2))) == [[], []]


async def test_a_message_goes_on_as_its_client_wrote_it_and_is_answered_where_it_could_not_be_read() -> None:
    served = Served("http://here", "t")
    line = b'{"id": 7, "method": "unread", "method": "unread", "params": {"a": NaN, "b": "\\ud800"}}\n'
    written: list[Any] = []

    async def lines() -> AsyncIterator[bytes]:
        yield line

    async with Gateway(lambda: Target("http://here", "t"), {}, httpx.MockTransport(served)) as way:
        await Bridge(way, written.append).serve(lines())
    assert [request.content for request in served.seen] == [line]
    assert [(answer["id"], answer["error"]["code"]) for answer in written] == [(7, -32700)]


async def test_what_stays_refused_is_told_once_and_not_tried_for_ever() -> None:
    served = Served("http://here", "good")
    async with Gateway(lambda: Target("http://here", "bad"), {}, httpx.MockTransport(served)) as way:
        with pytest.raises(Unreached, match="does not take the token"):
            await sent(way, {"method": "n"})
        with pytest.raises(CommandError):
            await way.check()
    assert len(served.seen) == 2


async def test_later_requests_carry_what_a_handshake_agreed_on() -> None:
    served = Served("http://here", "t")
    async with Gateway(
        lambda: Target("http://here", "t"), {"X-Loom-Toolset": "coding"}, httpx.MockTransport(served)
    ) as way:
        await sent(way, {"method": "initialize"})
        await sent(way, {"method": "n"})
    first, second = (request.headers for request in served.seen)
    assert "mcp-protocol-version" not in first
    assert (second["mcp-protocol-version"], second["mcp-session-id"]) == ("2025-11-25", "s")
    assert second["x-loom-toolset"] == "coding"


@pytest.mark.parametrize(
    ("name", "header"), [("memory_get", "memory_get"), ("é", "=?base64?w6k=?="), ("=?base64?x?=", None), (" a", None)]
)
async def test_requests_of_the_newest_revision_say_in_headers_what_they_are_about(
    name: str, header: str | None
) -> None:
    served = Served("http://here", "t")
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    async with Gateway(lambda: Target("http://here", "t"), {}, httpx.MockTransport(served)) as way:
        await sent(way, {"method": "tools/call", "params": {"name": name, "_meta": meta}})
        await sent(way, {"method": name, "params": {"_meta": meta}})
    request, odd = served.seen
    assert (request.headers["mcp-protocol-version"], request.headers["mcp-method"]) == ("2026-07-28", "tools/call")
    wrapped = f"=?base64?{base64.b64encode(name.encode()).decode()}?="
    assert request.headers["mcp-name"] == odd.headers["mcp-method"] == (header or wrapped)


async def test_a_stream_is_passed_on_message_by_message_and_a_refusal_is_told() -> None:
    served = Served("http://here", "t")
    async with Gateway(lambda: Target("http://here", "t"), {}, httpx.MockTransport(served)) as way:
        assert await sent(way, {"method": "stream"}) == [{"n": 1}, {"n": 2}, {"n": "\u2028\x85"}]
        with pytest.raises(Unreached, match="not here"):
            await sent(way, {"method": "refused"})
