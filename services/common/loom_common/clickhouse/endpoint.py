"""A small ClickHouse HTTP endpoint over the embedded engine, for the processes of one machine.

One process owns an engine directory. Where Loom runs as several processes, that one serves this endpoint and the
others reach it with the same driver as any ClickHouse server. It must have a password or be a socket that only its
owner can open: whoever may run SQL here may read every file that the process may read.

Not kept here: sessions, progress, external data. Answers are held whole before they are sent, so an error never comes
in the middle of one; their size is bounded.
"""

import asyncio
import hmac
import json
import logging
import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs

from loom_common.clickhouse.embedded_analyst import EmbeddedAnalyst
from loom_common.clickhouse.endpoint_analyst import PATH, answer_analyst, read_call
from loom_common.clickhouse.endpoint_wire import BadRequest, Statement, encoded, read_statement, summary
from loom_common.clickhouse.engine import EmbeddedEngine, EngineHandle
from loom_common.clickhouse.pool import HandlePool
from loom_common.clickhouse.tagging import next_log_comment
from loom_common.errors import LoomError

logger = logging.getLogger(__name__)
T = TypeVar("T")

# The types of the ASGI specification, which are open dictionaries.
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_LONGEST_STATEMENT_S: Final = 3600.0
_CODE: Final = re.compile(r"Code:\s*(\d+)")


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """Bounds of one request.

    Units: bytes.
    """

    body_bytes: int = 128 << 20
    decoded_bytes: int = 512 << 20
    result_bytes: int = 512 << 20
    query_memory_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class _Answer:
    body: bytes = b""
    result_format: str = ""
    written_rows: int | None = None


class ClickHouseEndpoint:
    """The ASGI application. Its handles open at lifespan startup and close at shutdown, in the server's own loop."""

    def __init__(
        self, engine: EmbeddedEngine, *, password: str | None, pool_size: int, limits: EndpointLimits | None = None
    ) -> None:
        """Takes the engine to serve.

        Args:
            engine: Stays open for as long as this serves.
            password: What a client must show; None only where the socket itself keeps others out.
            pool_size: Statements that run at the same time.
            limits: Bounds of one request.
        """
        if password == "":
            raise ValueError("an empty password lets everybody in")
        self._engine = engine
        self._password = password
        self._limits = limits or EndpointLimits()
        self._pool_size = pool_size
        self._pool: HandlePool[EngineHandle] | None = None
        self._killer: EngineHandle | None = None
        self._timezone = "UTC"
        self._analyst: EmbeddedAnalyst | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection's request, or the server's start and stop."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self._killer = self._engine.open_handle()
        self._pool = HandlePool(self._engine.open_handle, self._pool_size, self._killer.kill)
        await self._pool.start()
        timezone = await self._pool.run(lambda handle: handle.execute("SELECT timezone()"), next_log_comment(), 10)
        self._timezone = timezone.decode().strip()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._pool.close()
        if self._analyst is not None:
            await self._analyst.close()
        self._killer.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            if scope["path"] == "/ping":
                self._engine.directory.check()
                self._engine.directory.check_space()
                await _send(send, 200, b"Ok.\n", {})
                return
            self._authenticate(scope["query_string"], headers)
            body = await _read_body(receive, self._limits.body_bytes)
            if scope["path"] == PATH:
                await self._serve_analyst(body, receive, send)
                return
            statement = read_statement(scope["query_string"], headers, body, self._limits.decoded_bytes)
            answer = await self._run(statement, receive)
            if answer is None:
                return
            await self._send_answer(send, statement, answer, headers)
        except BadRequest as refused:
            await _send_error(send, refused.status, refused.code, refused.body)
        except LoomError as error:
            await _send_error(send, 500, 210, f"Code: 210. DB::Exception: {error}. (NETWORK_ERROR)\n".encode())
        except RuntimeError as error:
            # What the engine refused; the driver reads code and name from its text.
            text = str(error)
            code = _CODE.search(text)
            start = max(text.find("Code:"), 0)
            await _send_error(send, 500, int(code.group(1)) if code else 1001, text[start:].encode())

    async def _serve_analyst(self, body: bytes, receive: Receive, send: Send) -> None:
        """Runs a call of an analyst in another process; the key of its scope never leaves this one."""
        if self._analyst is None:
            key, database = self._engine.analyst_key, self._engine.analyst_database
            self._analyst = EmbeddedAnalyst(self._engine, database, key, places=self._pool_size)
        asked = read_call(body)
        if asked is None:
            await _send(send, 400, b"", {})
            return
        answer = await _unless_left(asyncio.ensure_future(answer_analyst(self._analyst, asked)), receive)
        if answer is None:
            logger.info("analyst_left")
            return
        await _send(send, 200, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _authenticate(self, query_string: bytes, headers: Mapping[str, str]) -> None:
        if self._password is None:
            return
        shown = headers.get("x-clickhouse-key")
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            try:
                shown = b64decode(credentials, validate=True).decode().partition(":")[2]
            except (Base64Error, UnicodeDecodeError):
                shown = None
        if shown is None:
            shown = parse_qs(query_string.decode("latin-1")).get("password", [""])[0]
        if not hmac.compare_digest(shown.encode(), self._password.encode()):
            raise BadRequest(403, 516, "AUTHENTICATION_FAILED", "Authentication failed")

    async def _run(self, statement: Statement, receive: Receive) -> _Answer | None:
        """Runs the statement; None when the client left a statement that could be dropped."""
        if self._pool is None:
            raise BadRequest(503, 210, "NETWORK_ERROR", "The endpoint is starting")
        settings: dict[str, object] = {
            "max_memory_usage": self._limits.query_memory_bytes,
            "log_comment": next_log_comment(),
            **statement.settings,
            "max_result_bytes": self._limits.result_bytes,
        }
        limit_s = float(statement.settings.get("max_execution_time") or 0) or _LONGEST_STATEMENT_S
        running = asyncio.ensure_future(
            self._pool.run(
                lambda handle: self._execute(handle, statement, settings), str(settings["log_comment"]), limit_s
            )
        )
        if not statement.reads_only:
            # A client that leaves does not undo half of a write: it runs to its end.
            return await asyncio.shield(running)
        answer = await _unless_left(running, receive)
        if answer is None:
            logger.info("client_left", extra={"log_comment": settings["log_comment"]})
        return answer

    def _execute(self, handle: EngineHandle, statement: Statement, settings: Mapping[str, object]) -> _Answer:
        if statement.data is not None:
            written = handle.insert(
                statement.text.decode(),
                statement.data_format,
                statement.data,
                database=statement.database,
                settings=settings,
            )
            self._engine.directory.check()
            return _Answer(written_rows=written)
        result_format = statement.own_format or statement.default_format
        body = handle.execute(
            statement.text,
            # With names, a result without rows still differs from a statement that has none.
            result_format or "TabSeparatedWithNames",
            parameters=statement.parameters,
            database=statement.database,
            settings=settings,
        )
        if result_format:
            return _Answer(body, result_format)
        return _Answer(body.partition(b"\n")[2], "TabSeparated") if body else _Answer()

    async def _send_answer(self, send: Send, statement: Statement, answer: _Answer, headers: Mapping[str, str]) -> None:
        sent = {
            "x-clickhouse-query-id": statement.query_id,
            "x-clickhouse-summary": summary(answer.written_rows),
            "x-clickhouse-timezone": self._timezone,
        }
        if answer.result_format:
            sent["x-clickhouse-format"] = answer.result_format
        body = answer.body
        if statement.compressed and body:
            body, encoding = await asyncio.to_thread(encoded, body, headers.get("accept-encoding", ""))
            if encoding:
                sent["content-encoding"] = encoding
        await _send(send, 200, body, sent)


async def _read_body(receive: Receive, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    total = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest(400, 210, "NETWORK_ERROR", "The client left")
        part = message.get("body", b"")
        total += len(part)
        if total > max_bytes:
            raise BadRequest(413, 307, "TOO_MANY_BYTES", "The body is too large")
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


async def _unless_left(running: asyncio.Future[T], receive: Receive) -> T | None:
    """Returns what comes of a statement; None, with the statement cancelled, where its client leaves before."""
    # Any: the two come to different things, and only that one of them did is asked.
    both: tuple[asyncio.Future[Any], ...] = (running, asyncio.ensure_future(_disconnected(receive)))
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return running.result() if running.done() else None
    finally:
        for task in both:
            task.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_error(send: Send, status: int, code: int, text: bytes) -> None:
    await _send(send, status, text, {"x-clickhouse-exception-code": str(code)})


async def _send(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    pairs += [(b"content-type", b"text/plain; charset=UTF-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    from loom_common.clickhouse.endpoint_process import main

    main()
