"""The analyst of an engine that another process of this machine holds: its calls, sent to the endpoint there.

The key stays in the process that holds the engine; what is sent is the scope, by a client that shows the password.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import aiohttp

from loom_common.clickhouse.analyst import Analyst
from loom_common.clickhouse.errors import AnalystFailure, StatementFailed
from loom_common.clickhouse.http import ServerAddress
from loom_common.errors import BackendUnavailable, DeadlineExceeded, LoomError

PATH: Final = "/analyst"
_GRACE_S: Final = 10.0
_PARSE_TIMEOUT_S: Final = 10.0


class EndpointAnalyst:
    """See `Analyst`."""

    def __init__(self, session: aiohttp.ClientSession, address: ServerAddress) -> None:
        self._session = session
        self._url = f"{address.scheme}://{address.host}:{address.port}{PATH}"
        self._auth = {"X-ClickHouse-User": address.user, "X-ClickHouse-Key": address.password}
        self.database = address.database
        self._settings: dict[str, str | int | float] = {}

    @classmethod
    async def find(cls, address: ServerAddress, *, connections: int) -> "EndpointAnalyst | None":
        """Returns the analyst behind an endpoint; None where the address is a server's."""
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections), trust_env=False)
        analyst = cls(session, address)
        try:
            answer = await analyst._ask({"do": "database"}, _PARSE_TIMEOUT_S)
        except (LoomError, AnalystFailure):
            answer = {}
        if answer.get("database") != address.database:
            await analyst.close()
            return None
        return analyst

    def configure(self, settings: Mapping[str, str | int | float]) -> None:
        """See `Analyst.configure`."""
        self._settings = dict(settings)

    async def formatted(self, statement: str) -> str:
        """See `Analyst.formatted`."""
        return str((await self._ask({"do": "formatted", "statement": statement}, _PARSE_TIMEOUT_S))["text"])

    async def syntax_tree(self, formatted: str) -> str:
        """See `Analyst.syntax_tree`."""
        return str((await self._ask({"do": "syntax_tree", "statement": formatted}, _PARSE_TIMEOUT_S))["text"])

    async def run(
        self, statement: str, output_format: str, org: str, namespaces: Sequence[str], *, timeout_s: float
    ) -> bytes:
        """See `Analyst.run`."""
        asked = {
            "do": "run",
            "statement": statement,
            "format": output_format,
            "org": org,
            "namespaces": list(namespaces),
            "timeout_s": timeout_s,
            "settings": self._settings,
        }
        return base64.b64decode((await self._ask(asked, timeout_s))["data"])

    async def run_unsigned(self, statement: str, log_comment: str) -> bytes:
        """See `Analyst.run_unsigned`."""
        asked = {"do": "run_unsigned", "statement": statement, "comment": log_comment, "settings": self._settings}
        return base64.b64decode((await self._ask(asked, _PARSE_TIMEOUT_S))["data"])

    async def close(self) -> None:
        """See `Analyst.close`."""
        await self._session.close()

    async def _ask(self, asked: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=timeout_s + _GRACE_S)
        try:
            async with self._session.post(self._url, json=asked, headers=self._auth, timeout=timeout) as answer:
                said = await answer.json(content_type=None) if answer.status == _OK else {}
        except TimeoutError:
            raise DeadlineExceeded("The database did not finish in time.") from None
        except (aiohttp.ClientError, OSError, ValueError):
            raise BackendUnavailable("The database cannot be reached.") from None
        if not isinstance(said, dict) or not said:
            raise BackendUnavailable("The database cannot be reached.")
        if said.get("deadline"):
            raise DeadlineExceeded("The database did not finish in time.")
        if "failure" in said:
            raise AnalystFailure(StatementFailed(said["code"], said["failure"]), str(said["text"]))
        return said


async def answer_analyst(analyst: Analyst, asked: Mapping[str, Any]) -> dict[str, object]:
    """Returns what the endpoint answers to one call of `EndpointAnalyst`."""
    try:
        if "settings" in asked:
            analyst.configure(asked["settings"])
        match asked["do"]:
            case "database":
                return {"database": analyst.database}
            case "formatted":
                return {"text": await analyst.formatted(asked["statement"])}
            case "syntax_tree":
                return {"text": await analyst.syntax_tree(asked["statement"])}
            case "run":
                data = await analyst.run(
                    asked["statement"],
                    asked["format"],
                    asked["org"],
                    asked["namespaces"],
                    timeout_s=float(asked["timeout_s"]),
                )
            case _:
                data = await analyst.run_unsigned(asked["statement"], asked["comment"])
    except AnalystFailure as error:
        return {"failure": error.cause.name, "code": error.cause.code, "text": error.text}
    except DeadlineExceeded:
        return {"deadline": True}
    return {"data": base64.b64encode(data).decode()}


def read_call(body: bytes) -> dict[str, Any] | None:
    """Returns a call of `EndpointAnalyst`, or None where the body is none."""
    try:
        asked = json.loads(body)
    except ValueError:
        return None
    return asked if isinstance(asked, dict) and "do" in asked else None


_OK: Final = 200
