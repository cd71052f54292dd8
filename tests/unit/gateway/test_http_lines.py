"""Lines of records over HTTP: cut where they end, never held whole, and answered in lines."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from google.protobuf.message import Message
from starlette.datastructures import Headers

from loom.memory.v1 import transfer_pb2 as pb
from loom_common.errors import BackendUnavailable, InvalidArgument, LoomError, MalformedRequest, PayloadTooLarge
from loom_gateway.calls.caller import Caller, Transport, caller_of
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.http import lines as lines_module
from loom_gateway.http.lines import MAX_LINE_BYTES, LineIntake, send_lines

NDJSON = {"content-type": "application/x-ndjson"}


class Intake:
    """Stands for the way of a call: keeps what was sent, and answers each message by the number of its lines."""

    def __init__(self, failure: LoomError | None = None) -> None:
        self.requests: list[pb.ImportMemoriesRequest] = []
        self.failure = failure

    @contextlib.asynccontextmanager
    async def stream(
        self, op: Any, caller: Caller, read: Callable[[], Any], more: AsyncIterator[Message] | None = None
    ) -> AsyncIterator[AsyncIterator[Message]]:
        first = await read()

        async def answers() -> AsyncIterator[Message]:
            self.requests.append(first)
            yield pb.ImportMemoriesResponse(stored_count=len(first.lines))
            assert more is not None
            async for request in more:
                self.requests.append(request)
                yield pb.ImportMemoriesResponse(stored_count=len(request.lines))
            if self.failure is not None:
                raise self.failure

        yield answers()


class Sent:
    """What was answered."""

    def __init__(self) -> None:
        self.body = b""
        self.kind = ""

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.kind = Headers(raw=message["headers"])["content-type"]
        else:
            self.body += message["body"]

    @property
    def lines(self) -> list[Any]:
        return [json.loads(one) for one in self.body.splitlines()]


async def intake(
    parts: Sequence[bytes],
    *,
    query: bytes = b"",
    headers: dict[str, str] = NDJSON,
    to: Intake | None = None,
    max_bytes: int = 64 << 20,
    into: Sent | None = None,
) -> tuple[Intake, Sent]:
    dispatcher, sent = to or Intake(), into or Sent()
    events = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    events.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Any:
        return events.pop(0)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "headers": raw, "query_string": query}
    line_intake = LineIntake(dispatcher, max_bytes=max_bytes)  # type: ignore[arg-type]  # of the dispatcher only this
    caller = caller_of(Headers(raw=raw), Transport.HTTP, "r")
    await line_intake.answer(Catalogue().streams["memory.import"], caller, scope, receive, sent)
    return dispatcher, sent


async def test_lines_are_put_together_whatever_the_parts_that_they_come_in() -> None:
    dispatcher, sent = await intake([b'{"a"', b": 1}\n{", b'"b": 2}\r\n\n', b'{"c": 3}'])
    assert [bytes(one) for request in dispatcher.requests for one in request.lines] == [
        b'{"a": 1}', b'{"b": 2}\r', b"", b'{"c": 3}',
    ]  # fmt: skip
    assert sent.kind.startswith("application/x-ndjson")
    assert sent.lines[0]["stored_count"] == 4


async def test_many_lines_go_in_several_messages_and_the_query_says_what_they_are_for() -> None:
    body = b"\n".join(b'{"n": %d}' % number for number in range(2_500))
    dispatcher, sent = await intake([body], query=b"namespace=team&dry_run=true&if_exists=skip")
    first = dispatcher.requests[0]
    assert (first.namespace, first.dry_run, first.if_exists) == ("team", True, "skip")
    assert [len(request.lines) for request in dispatcher.requests] == [1_000, 1_000, 500]
    assert sum(line["stored_count"] for line in sent.lines) == 2_500


async def test_a_line_that_is_too_long_is_cut_and_its_neighbours_are_whole() -> None:
    piece = b"x" * (1 << 20)
    parts = [b'{"a": 1}\n', *[piece] * 9, b'\n{"b": 2}\n']
    dispatcher, _ = await intake(parts)
    first, long, last = dispatcher.requests[0].lines
    assert (bytes(first), bytes(last)) == (b'{"a": 1}', b'{"b": 2}')
    assert len(long) < 100 < MAX_LINE_BYTES
    with pytest.raises(ValueError, match=r"delimiter|Expecting|Unterminated"):
        json.loads(bytes(long))


@pytest.mark.parametrize(
    ("query", "headers", "error"),
    [
        (b"unheard=1", NDJSON, MalformedRequest),
        (b"dry_run=yes", NDJSON, MalformedRequest),
        (b"dry_run=true&dry_run=true", NDJSON, MalformedRequest),
        (b"if_exists=burn", NDJSON, InvalidArgument),
        (b"", {"content-type": "application/json"}, MalformedRequest),
        (b"", {**NDJSON, "content-encoding": "gzip"}, MalformedRequest),
        (b"", {**NDJSON, "content-length": "999999999"}, PayloadTooLarge),
    ],
)
async def test_what_is_wrong_beside_the_lines_is_refused(
    query: bytes, headers: dict[str, str], error: type[LoomError]
) -> None:
    with pytest.raises(error):
        await intake([b'{"a": 1}'], query=query, headers=headers)


async def test_an_empty_body_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        await intake([b""])


async def test_what_fails_on_its_way_is_told_in_the_last_line_behind_what_was_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(BackendUnavailable):
        await intake([b'{"a": 1}'], to=Intake(BackendUnavailable("away")))
    monkeypatch.setattr(lines_module, "_BATCH_LINES", 1)
    sent = Sent()

    async def answers() -> AsyncIterator[Message]:
        yield pb.ExportMemoriesResponse(lines=[b'{"key":"a"}', b'{"key":"b"}'], cursor="c1", count=2)
        raise BackendUnavailable("away")

    with pytest.raises(BackendUnavailable):
        await send_lines(answers(), sent, "r")
    assert [set(line) for line in sent.lines] == [{"key"}, {"key"}, {"cursor"}, {"error"}]


async def test_an_export_ends_with_how_many_it_sent() -> None:
    sent = Sent()

    async def answers() -> AsyncIterator[Message]:
        yield pb.ExportMemoriesResponse(lines=[b'{"key":"a"}'], cursor="c1", count=1)
        yield pb.ExportMemoriesResponse(finished=True, count=1)

    await send_lines(answers(), sent, "r")
    assert sent.body == b'{"key":"a"}\n{"cursor":"c1"}\n{"finished":true,"count":1}\n'


async def test_a_body_beyond_the_limit_ends_the_import_behind_what_came_before() -> None:
    sent = Sent()
    body = [b'{"a": 1}\n' * 1_000] * 3
    with pytest.raises(PayloadTooLarge):
        await intake(body, max_bytes=2 * len(body[0]) + 10, into=sent)
    assert sent.lines[0]["stored_count"] == 1_000
    assert sent.lines[-1]["error"]["code"] == "PAYLOAD_TOO_LARGE"
