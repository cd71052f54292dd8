"""Sends statements to a ClickHouse server as the analyst, which signs in with a password of its own."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

import aiohttp

from loom_common.clickhouse.errors import AnalystFailure, StatementFailed, engine_failure
from loom_common.clickhouse.http import ServerAddress
from loom_insights.domain.server_entities import ANALYST

ATTEMPTS: Final = 2
"""A statement that got no answer is sent once more, under its own id, and replaces its own first attempt."""
GRACE_S: Final = 5.0
"""What an attempt may take beyond the statement's own time."""

_CODE_HEADER: Final = "X-ClickHouse-Exception-Code"
_OK: Final = 200
_MAX_BYTES: Final = 32 << 20


class NoAnswer(Exception):
    """The server gave no answer; the text is the kind of what happened."""


class ServerAnalyst:
    """Speaks ClickHouse's HTTP protocol as the analyst; an async context manager."""

    def __init__(self, address: ServerAddress, *, connections: int) -> None:
        self._address = address
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=self._connections)
        self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def run(
        self,
        statement: str,
        output_format: str,
        password: str,
        settings: Mapping[str, str | int | float],
        *,
        query_id: str,
        timeout_s: float,
    ) -> bytes:
        """Returns the whole result of a statement.

        Raises:
            AnalystFailure: The server refused it.
            NoAnswer: It did not answer any attempt.
        """
        last = ""
        for attempt in range(ATTEMPTS):
            replacing = {"replace_running_query": 1} if attempt else {}
            try:
                async with asyncio.timeout(timeout_s + GRACE_S):
                    return await self._send(statement, output_format, password, {**settings, **replacing}, query_id)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                last = type(error).__name__
        raise NoAnswer(last)

    async def _send(
        self,
        statement: str,
        output_format: str,
        password: str,
        settings: Mapping[str, str | int | float],
        query_id: str,
    ) -> bytes:
        assert self._session is not None, "entered before"
        address = self._address
        parameters = {
            **{name: str(value) for name, value in settings.items()},
            "database": address.database,
            "query_id": query_id,
            "default_format": output_format,
            # Nothing is sent before the result is whole, so that an error is never in the middle of rows.
            "wait_end_of_query": "1",
            "cancel_http_readonly_queries_on_client_close": "1",
        }
        headers = {"X-ClickHouse-User": ANALYST, "X-ClickHouse-Key": password, "Accept-Encoding": "identity"}
        url = f"{address.scheme}://{address.host}:{address.port}/"
        async with self._session.post(url, params=parameters, data=statement.encode(), headers=headers) as answer:
            body = await answer.content.read(_MAX_BYTES + 1)
            while len(body) <= _MAX_BYTES and not answer.content.at_eof():
                body += await answer.content.read(_MAX_BYTES + 1 - len(body))
            if answer.status == _OK and _CODE_HEADER not in answer.headers:
                return body
        text = body.decode("utf-8", "replace")
        failed = engine_failure(RuntimeError(text))
        code = answer.headers.get(_CODE_HEADER, "")
        cause = StatementFailed(int(code) if code.isdigit() else failed.code, failed.name)
        raise AnalystFailure(cause, text)
