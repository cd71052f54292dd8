"""Bodies and answers that are compressed."""

import gzip
import zlib

import pytest
from backports import zstd
from starlette.types import Message, Receive, Scope, Send

from loom_common.errors import MalformedRequest
from loom_gateway.http.coding import CompressedAnswers, chosen_coding, decoded

BODY = b'{"key": "k"}'
LIMIT = 1024
PACKED = {"gzip": gzip.compress, "zstd": zstd.compress}


@pytest.mark.parametrize("coding", PACKED)
def test_a_packed_body_is_read_as_it_was(coding: str) -> None:
    assert decoded(PACKED[coding](BODY), coding.upper(), LIMIT) == BODY
    assert decoded(PACKED[coding](b"x" * LIMIT), coding, LIMIT) == b"x" * LIMIT


@pytest.mark.parametrize("coding", ["", "identity"])
def test_a_body_without_a_coding_is_left_alone(coding: str) -> None:
    assert decoded(BODY, coding, LIMIT) == BODY


@pytest.mark.parametrize("coding", PACKED)
def test_a_body_that_unpacks_to_more_than_the_limit_is_refused_unread(coding: str) -> None:
    bomb = PACKED[coding](b"\0" * (64 * 1024 * 1024))
    assert len(bomb) < 70_000
    assert decoded(bomb, coding, LIMIT) is None
    assert decoded(PACKED[coding](b"x" * (LIMIT + 1)), coding, LIMIT) is None


@pytest.mark.parametrize("coding", PACKED)
def test_a_body_that_is_cut_or_goes_on_or_is_no_such_stream_is_malformed(coding: str) -> None:
    whole = PACKED[coding](BODY)
    for body in (whole[:-1], whole[:8], whole + b"x", whole + whole, BODY, b"\0" * 20):
        with pytest.raises(MalformedRequest):
            decoded(body, coding, LIMIT)


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "gzip,zstd", "x"])
def test_another_coding_is_malformed_and_told_what_is_taken(coding: str) -> None:
    with pytest.raises(MalformedRequest) as caught:
        decoded(zlib.compress(BODY), coding, LIMIT)
    assert caught.value.detail == {"accepted": "gzip, zstd"}


def test_a_zstd_body_may_not_ask_for_more_memory_than_http_allows() -> None:
    wide = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.enable_long_distance_matching: 1}
    body = zstd.ZstdCompressor(options=wide)
    packed = body.compress(BODY) + body.flush()
    with pytest.raises(MalformedRequest):
        decoded(packed, "zstd", LIMIT)


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("", "identity"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip", "gzip"),
        ("GZIP;q=0.5, zstd;q=0.1", "gzip"),
        ("zstd;q=0, gzip;q=0", "identity"),
        ("br", "identity"),
        ("gzip;q=abc", "identity"),
        ("*", "identity"),
    ],
)
def test_the_coding_of_an_answer_is_the_best_that_is_asked_for(accepted: str, chosen: str) -> None:
    assert chosen_coding(accepted) == chosen


async def answered(*messages: Message) -> list[Message]:
    """Returns what reaches a client that takes gzip, of an application that sends these messages."""
    sent: list[Message] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        sent.append(message)

    await CompressedAnswers(app)({"type": "http", "headers": [(b"accept-encoding", b"gzip")]}, receive, send)
    return sent


def start(kind: bytes, *headers: tuple[bytes, bytes]) -> Message:
    return {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind), *headers]}


async def test_the_opening_of_a_stream_does_not_wait_for_its_first_event() -> None:
    opening = start(b"text/event-stream")
    assert await answered(opening) == [opening]


async def test_a_part_of_an_answer_is_not_packed_and_the_whole_is() -> None:
    body: Message = {"type": "http.response.body", "body": b"x" * 5000}
    part = start(b"text/css", (b"content-range", b"bytes 0-4999/9000"), (b"content-length", b"5000"))
    assert (await answered(part, body))[1] == body
    whole = await answered(start(b"text/css", (b"content-length", b"5000")), body)
    assert gzip.decompress(whole[1]["body"]) == body["body"]
    assert (b"content-length", str(len(whole[1]["body"])).encode()) in whole[0]["headers"]
