"""The way from `loom mcp` to a gateway: one HTTP request for each message, on behalf of one client."""

import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import httpx

from loom_cli.console import CommandError

Json = dict[str, object]

# Source: chosen. A gateway that is there takes a connection at once; how long a call may take is its own to say.
_CONNECT_S: Final = 5.0
_READ_S: Final = 600.0

_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
# Which parameter a request is about, for requests whose headers must say so.
_NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Target:
    """Where a Loom answers, and as whom to ask it."""

    url: str
    token: str = field(repr=False)


class Unreached(Exception):
    """A message was not answered; the text says why and what to do."""


class Gateway:
    """Sends messages to `/mcp` and finds Loom again where it was started anew.

    Args:
        find: Returns where Loom is now; asked again when the last place refuses.
        headers: Headers of every request.
        transport: What carries requests; None for the network.
    """

    def __init__(
        self,
        find: Callable[[], Target],
        headers: Mapping[str, str],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._find = find
        self._headers = dict(headers)
        self._target = find()
        self._session = ""
        self._version = ""
        self._stack = AsyncExitStack()
        self._transport = transport
        self._http: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        # A proxy of the environment is for other machines.
        near = urlsplit(self._target.url).hostname in _LOOPBACK
        timeout = httpx.Timeout(_READ_S, connect=_CONNECT_S)
        client = httpx.AsyncClient(trust_env=not near, timeout=timeout, transport=self._transport)
        self._http = await self._stack.enter_async_context(client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def check(self) -> None:
        """Returns where Loom answers and takes the token.

        Raises:
            CommandError: It does not.
        """
        try:
            ping: Json = {"jsonrpc": "2.0", "id": "loom-mcp", "method": "ping"}
            async for _ in self.send(ping, json.dumps(ping).encode()):
                pass
        except Unreached as error:
            raise CommandError(str(error)) from error

    async def send(self, message: Json, line: bytes) -> AsyncIterator[Json]:
        """Yields what comes back for a message: notices, and the answer where it is a request.

        Args:
            message: The message.
            line: It as its client wrote it: read and written anew it would lose what the gateway refuses.

        Raises:
            Unreached: Loom cannot be reached, or refuses it before it is a message.
        """
        for last in (False, True):
            target = self._target
            try:
                async for answer in self._sent(target, message, line):
                    yield answer
            except _Refused as refused:
                # Loom may have been started anew, which ends the token of the start before.
                if last or not self._found_elsewhere(target):
                    raise Unreached(refused.text) from refused
            else:
                return

    async def _sent(self, target: Target, message: Json, line: bytes) -> AsyncIterator[Json]:
        assert self._http is not None, "entered"
        headers = self._headers_of(target, message)
        try:
            async with self._http.stream("POST", f"{target.url}/mcp", content=line, headers=headers) as response:
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    async for answer in _events(response):
                        yield answer
                    return
                body = await response.aread()
        except httpx.ConnectError:
            raise _Refused(f"no Loom answers at {target.url}; start one with `loom up`") from None
        except httpx.HTTPError as error:
            raise Unreached(f"Loom at {target.url} did not answer ({type(error).__name__})") from error
        self._remember(message, response, body)
        answer = _parsed(body)
        if "jsonrpc" in answer:
            # What the gateway could not read it answers without an identifier; the client waits for its own.
            unread = answer.get("id") is None and "id" in message
            yield {**answer, "id": message["id"]} if unread else answer
        elif response.status_code == httpx.codes.UNAUTHORIZED:
            raise _Refused(f"Loom at {target.url} does not take the token; set LOOM_API_KEY to one it knows")
        elif response.is_error:
            raise Unreached(_told(answer, response.status_code))

    def _headers_of(self, target: Target, message: Json) -> dict[str, str]:
        method, params = message.get("method"), message.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        version = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
        found = {
            **self._headers,
            "Authorization": f"Bearer {target.token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        if isinstance(version, str) and isinstance(method, str):
            found |= {"MCP-Protocol-Version": _header(version), "Mcp-Method": _header(method)}
            name = params.get(_NAMED_BY.get(method, ""))
            if isinstance(name, str):
                found["Mcp-Name"] = _header(name)
        elif self._version:
            found["MCP-Protocol-Version"] = self._version
        if self._session:
            found["Mcp-Session-Id"] = self._session
        return found

    def _remember(self, message: Json, response: httpx.Response, body: bytes) -> None:
        """Keeps what a handshake agreed on, which later requests must carry."""
        if message.get("method") != "initialize" or response.is_error:
            return
        self._session = response.headers.get("mcp-session-id", "")
        result = _parsed(body).get("result")
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        self._version = version if isinstance(version, str) else ""

    def _found_elsewhere(self, refused: Target) -> bool:
        """Returns whether Loom is elsewhere than where it refused; another message may have found it meanwhile."""
        try:
            self._target = self._find()
        except CommandError:
            return False
        return self._target != refused


class _Refused(Exception):
    """Loom is not there, or not the one that made the token."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


async def _events(response: httpx.Response) -> AsyncIterator[Json]:
    """Yields the messages of a stream of events."""
    data: list[bytes] = []
    async for line in _lines(response):
        if line.startswith(b"data:"):
            data.append(line.removeprefix(b"data:").removeprefix(b" "))
        elif not line and data:
            yield _parsed(b"\n".join(data))
            data = []


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yields the lines of a stream, which end with a line feed: the client's own would end at U+2028 and the like too.

    The protocol knows a bare carriage return as well, which no gateway writes.
    """
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")


def _parsed(body: bytes) -> Json:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _told(answer: Json, status: int) -> str:
    error = answer.get("error")
    told = error.get("message") if isinstance(error, dict) else None
    return str(told) if told else f"Loom answered with HTTP {status}"


def _header(value: str) -> str:
    """Returns a value as a header carries it: what would not survive there is encoded as the protocol says."""
    if _PLAIN.fullmatch(value) and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'surrogatepass')).decode('ascii')}?="
