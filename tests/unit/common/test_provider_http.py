"""The HTTP client of providers: how long an answer and an event may be, packed or not, and where redirects lead."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest
from structlog.testing import capture_logs
from support.providers import TEST_KEY, ProviderStandIn, Reply

from loom_common.providers import http
from loom_common.providers.http import MAX_EVENT_BYTES, ProviderHttp

EVENTS = {"content-type": "text/event-stream"}
GZIP = {"content-encoding": "gzip"}
EVENT = b'data: {"text": "some words of an answer"}\n\n'


@pytest.fixture
async def client() -> AsyncIterator[ProviderHttp]:
    async with ProviderHttp(timeout_s=30, connect_timeout_s=5) as made:
        yield made


@pytest.fixture
async def stand_in() -> AsyncIterator[ProviderStandIn]:
    async with ProviderStandIn().running() as server:
        yield server


async def read(client: ProviderHttp, stand_in: ProviderStandIn) -> int:
    """Reads one answer as the SDKs read streams; returns how many bytes came."""
    async with client.stream("POST", stand_in.openai_url, json={}) as response:
        return sum([len(piece) async for piece in response.aiter_bytes()])


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_a_packed_answer_is_unpacked_whole(
    client: ProviderHttp, stand_in: ProviderStandIn, pack: Callable[[bytes], bytes]
) -> None:
    words = "".join(f"{number} " for number in range(50_000))
    encoding = "gzip" if pack is gzip.compress else "deflate"
    stand_in.script(Reply(body=pack(words.encode()), headers={"content-encoding": encoding}))
    assert (await client.post(stand_in.openai_url, json={})).text == words
    assert stand_in.requests[0].headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize("headers", [{}, EVENTS], ids=["whole", "events"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
async def test_an_answer_is_read_up_to_its_bound_and_broken_off_beyond(
    client: ProviderHttp,
    stand_in: ProviderStandIn,
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, str],
    packed: bool,
) -> None:
    most = 1000 * len(EVENT)
    monkeypatch.setattr(http, "MAX_STREAM_BYTES" if headers else "MAX_ANSWER_BYTES", most)
    for count in (1000, 1001):
        body = EVENT * count
        sent = Reply(body=gzip.compress(body) if packed else body, headers={**headers, **(GZIP if packed else {})})
        stand_in.script(sent)
        if count == 1000:
            assert await read(client, stand_in) == most
        else:
            with pytest.raises(httpx2.DecodingError):
                await read(client, stand_in)


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        (b"data: " + b"x" * (MAX_EVENT_BYTES - 1000) + b"\n\n" + EVENT, True),
        (b"data: " + b"x" * MAX_EVENT_BYTES + b"\n\n", False),
        (b"data: x\n" * 2000 + b"\n", False),
        (b"data: x\r\n" * 400 + b"\r\n", True),
        (b"data: x\n\n" * 200_000, True),
        (b"data: x\r\n\r\n" * 200_000, True),
        (b"data: x\r\r" * 200_000, True),
    ],
    ids=["long", "too long", "too many lines", "lines", "many", "many CRLF", "many CR"],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
async def test_one_event_of_a_stream_is_bounded_and_their_number_is_not(
    client: ProviderHttp, stand_in: ProviderStandIn, body: bytes, fits: bool, packed: bool
) -> None:
    headers = {**EVENTS, **(GZIP if packed else {})}
    stand_in.script(Reply(body=gzip.compress(body) if packed else body, headers=headers))
    if fits:
        assert await read(client, stand_in) == len(body)
    else:
        with pytest.raises(httpx2.DecodingError):
            await read(client, stand_in)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"], ids=["LF", "CRLF", "CR"])
def test_an_event_ends_also_where_its_end_comes_byte_by_byte(end: bytes) -> None:
    bound = http._EventBound()
    assert all(bound.holds(bytes([byte])) for byte in (b"data: x" + end) * 1000)


async def test_others_get_their_turn_while_a_packed_answer_is_unpacked(
    client: ProviderHttp, stand_in: ProviderStandIn
) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    body = gzip.compress(b" " * http.MAX_ANSWER_BYTES)
    stand_in.script(Reply(body=body, headers=GZIP))
    other = asyncio.create_task(count_turns())
    await client.post(stand_in.openai_url, json={})
    other.cancel()
    assert turns > http.MAX_ANSWER_BYTES // (64 * 1024)


async def test_a_redirect_on_the_same_origin_is_followed_with_all_that_was_sent(
    client: ProviderHttp, stand_in: ProviderStandIn
) -> None:
    stand_in.script(Reply(307, headers={"location": "/v1/chat/completions"}))
    answer = await client.post(stand_in.openai_url, json={"model": "m"}, headers={"x-api-key": TEST_KEY})
    assert answer.status_code == 200
    assert [request.json for request in stand_in.requests] == [{"model": "m"}] * 2
    assert [request.headers["x-api-key"] for request in stand_in.requests] == [TEST_KEY] * 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1:{port}/v1", "//127.0.0.1:{port}/v1", "https://127.0.0.1:{own}/v1", "http://localhost:{own}/v1"],
)
async def test_a_redirect_elsewhere_is_not_followed_and_is_logged(
    client: ProviderHttp, stand_in: ProviderStandIn, status: int, location: str
) -> None:
    async with ProviderStandIn().running() as other:
        target = location.format(port=other.port, own=stand_in.port)
        stand_in.script(Reply(status, headers={"location": target}))
        with capture_logs() as logs:
            answer = await client.post(stand_in.openai_url, json={"secret": "prompt"})
        assert other.requests == []
    assert answer.status_code == status
    assert len(stand_in.requests) == 1
    assert [log["event"] for log in logs] == ["provider_redirects_elsewhere"]


async def test_a_redirect_to_what_is_no_address_is_not_followed(
    client: ProviderHttp, stand_in: ProviderStandIn
) -> None:
    stand_in.script(Reply(307, headers={"location": "http://[nowhere:99999999"}))
    assert (await client.post(stand_in.openai_url, json={})).status_code == 307
