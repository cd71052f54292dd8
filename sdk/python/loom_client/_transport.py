"""HTTP below the generated operations: one request, one answer, sent again where that is safe."""

import json
import os
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import httpx
import tenacity

from loom_client.errors import (
    RESEND_REASONS,
    InternalError,
    LoomConfigError,
    LoomConnectionError,
    LoomError,
    MalformedRequest,
)

DEFAULT_BASE_URL: Final = "http://127.0.0.1:8080"
# Source: chosen. Longer than the server's own bounds on a search, shorter than a person's patience.
DEFAULT_TIMEOUT_S: Final = 30.0
# Source: chosen. Random waits below 0.2, 0.4 and 0.8 s bridge a restart behind a balancer.
MAX_ATTEMPTS: Final = 4
MAX_WAIT_S: Final = 10.0
_NDJSON: Final = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where to send, as whom, and how long to wait."""

    base_url: str
    token: str
    namespace: str | None
    timeout_s: float
    max_attempts: int

    @classmethod
    def of(
        cls, base_url: str | None, token: str | None, namespace: str | None, timeout_s: float, max_attempts: int
    ) -> Self:
        """Fills what was not given from `LOOM_BASE_URL` and `LOOM_API_KEY`.

        Raises:
            LoomConfigError: There is no token, or the address is no HTTP address.
        """
        address = base_url or os.environ.get("LOOM_BASE_URL") or DEFAULT_BASE_URL
        secret = token or os.environ.get("LOOM_API_KEY") or ""
        if not secret:
            raise LoomConfigError("NOT_CONFIGURED", "no token: pass token=... or set LOOM_API_KEY")
        if not address.startswith(("http://", "https://")):
            raise LoomConfigError(
                "NOT_CONFIGURED", f"{address!r} is no address: it must begin with http:// or https://"
            )
        return cls(address.rstrip("/"), secret, namespace, timeout_s, max(1, max_attempts))

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        scope = {"X-Loom-Namespace": self.namespace} if self.namespace else {}
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **scope}


class SyncTransport:
    """Sends operations and waits for their answers."""

    def __init__(self, config: ClientConfig, http: httpx.Client | None = None) -> None:
        self._config = config
        self._http = http or httpx.Client(timeout=config.timeout_s)

    def call(self, op: str, body: Mapping[str, Any], *, idempotent: bool) -> dict[str, Any]:
        """Sends one operation; see `loom_client._wire.Caller`."""
        repeatable = idempotent and _repeatable(body)
        headers, content = _call_headers(self._config), _encode(body)
        for attempt in tenacity.Retrying(**_policy(self._config, repeatable=repeatable)):
            with attempt:
                try:
                    answer = self._http.post(f"{self._config.base_url}/v1/{op}", content=content, headers=headers)
                except httpx.HTTPError as error:
                    raise _unreachable(self._config, error) from error
                return _read(answer)
        raise AssertionError("the retry loop ends by an answer or an error")

    def lines_out(self, op: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        """Yields the lines that an operation answers, as they come."""
        url, content = f"{self._config.base_url}/v1/{op}", _encode(body)
        try:
            with self._http.stream("POST", url, content=content, headers=_call_headers(self._config)) as answer:
                if not answer.is_success:
                    answer.read()
                    _read(answer)
                yield from _Lines().over(answer.iter_bytes())
        except httpx.HTTPError as error:
            raise _unreachable(self._config, error) from error

    def lines_in(self, op: str, asked: Mapping[str, str], lines: list[bytes]) -> list[bytes]:
        """Sends lines to an idempotent operation and returns those of its answer."""
        headers = {**_call_headers(self._config), "Content-Type": _NDJSON}
        url, content = f"{self._config.base_url}/v1/{op}", b"\n".join(lines)
        for attempt in tenacity.Retrying(**_policy(self._config, repeatable=True)):
            with attempt:
                try:
                    answer = self._http.post(url, params=dict(asked), content=content, headers=headers, timeout=None)
                except httpx.HTTPError as error:
                    raise _unreachable(self._config, error) from error
                return _read_lines(answer)
        raise AssertionError("the retry loop ends by an answer or an error")

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncTransport:
    """Sends operations; for asyncio."""

    def __init__(self, config: ClientConfig, http: httpx.AsyncClient | None = None) -> None:
        self._config = config
        self._http = http or httpx.AsyncClient(timeout=config.timeout_s)

    async def call(self, op: str, body: Mapping[str, Any], *, idempotent: bool) -> dict[str, Any]:
        """Sends one operation; see `loom_client._wire.AsyncCaller`."""
        repeatable = idempotent and _repeatable(body)
        headers, content = _call_headers(self._config), _encode(body)
        async for attempt in tenacity.AsyncRetrying(**_policy(self._config, repeatable=repeatable)):
            with attempt:
                try:
                    answer = await self._http.post(f"{self._config.base_url}/v1/{op}", content=content, headers=headers)
                except httpx.HTTPError as error:
                    raise _unreachable(self._config, error) from error
                return _read(answer)
        raise AssertionError("the retry loop ends by an answer or an error")

    async def lines_out(self, op: str, body: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """Yields the lines that an operation answers, as they come."""
        url, content = f"{self._config.base_url}/v1/{op}", _encode(body)
        lines = _Lines()
        try:
            async with self._http.stream("POST", url, content=content, headers=_call_headers(self._config)) as answer:
                if not answer.is_success:
                    await answer.aread()
                    _read(answer)
                async for part in answer.aiter_bytes():
                    for line in lines.take(part):
                        yield line
                for line in lines.end():
                    yield line
        except httpx.HTTPError as error:
            raise _unreachable(self._config, error) from error

    async def lines_in(self, op: str, asked: Mapping[str, str], lines: list[bytes]) -> list[bytes]:
        """Sends lines to an idempotent operation and returns those of its answer."""
        headers = {**_call_headers(self._config), "Content-Type": _NDJSON}
        url, content = f"{self._config.base_url}/v1/{op}", b"\n".join(lines)
        async for attempt in tenacity.AsyncRetrying(**_policy(self._config, repeatable=True)):
            with attempt:
                try:
                    answer = await self._http.post(
                        url, params=dict(asked), content=content, headers=headers, timeout=None
                    )
                except httpx.HTTPError as error:
                    raise _unreachable(self._config, error) from error
                return _read_lines(answer)
        raise AssertionError("the retry loop ends by an answer or an error")

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()


class _Lines:
    """Puts lines together from parts of an answer."""

    def __init__(self) -> None:
        self._held = bytearray()

    def over(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        for part in parts:
            yield from self.take(part)
        yield from self.end()

    def take(self, part: bytes) -> Iterator[bytes]:
        first, *rest = part.split(b"\n")
        self._held += first
        for piece in rest:
            yield bytes(self._held)
            self._held = bytearray(piece)

    def end(self) -> Iterator[bytes]:
        if self._held:
            yield bytes(self._held)


def _read_lines(answer: httpx.Response) -> list[bytes]:
    if not answer.is_success:
        _read(answer)
    return [line for line in answer.content.split(b"\n") if line]


def _repeatable(body: Mapping[str, Any]) -> bool:
    """Returns whether an idempotent operation may be sent again with these arguments.

    A write that names the version it expects has changed it when it is sent again, and would be refused for that.
    """
    return not any("expected_version" in one for one in (body, *body.get("items", ())))


def _encode(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        # A lone surrogate, a NaN, or a value that JSON has no form for: nothing was sent.
        raise MalformedRequest("MALFORMED_REQUEST", f"the arguments cannot be sent as JSON: {error}") from error


def _call_headers(config: ClientConfig) -> dict[str, str]:
    # One identifier for all attempts of a call, so that the server's logs show them together.
    return {**config.headers, "X-Request-Id": uuid.uuid4().hex}


def _policy(config: ClientConfig, *, repeatable: bool) -> dict[str, Any]:
    backoff = tenacity.wait_random_exponential(multiplier=0.2, max=MAX_WAIT_S)

    def wait(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after_s if isinstance(error, LoomError) else None
        return min(asked, MAX_WAIT_S) if asked is not None else backoff(state)

    return {
        "retry": tenacity.retry_if_exception(lambda error: repeatable and _passes(error)),
        "stop": tenacity.stop_after_attempt(config.max_attempts),
        "wait": wait,
        "reraise": True,
    }


def _passes(error: BaseException) -> bool:
    if isinstance(error, LoomConnectionError):
        # A timeout was the caller's bound; waiting for it again would multiply it.
        return error.reason == "UNREACHABLE"
    return isinstance(error, LoomError) and error.reason in RESEND_REASONS


def _unreachable(config: ClientConfig, error: httpx.HTTPError) -> LoomConnectionError:
    if isinstance(error, httpx.TimeoutException):
        return LoomConnectionError("TIMEOUT", f"no answer within {config.timeout_s:g} s")
    return LoomConnectionError("UNREACHABLE", f"{config.base_url} does not answer; is Loom running?")


def _read(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if answer.is_success and isinstance(body, dict):
        return body
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        raise InternalError("INTERNAL", "the answer is not Loom's; is this its address?", status=answer.status_code)
    raise LoomError.from_body(
        error, status=answer.status_code, retry_after_s=_seconds(answer.headers.get("Retry-After"))
    )


def _seconds(value: str | None) -> float | None:
    try:
        return None if value is None else max(0.0, float(value))
    except ValueError:
        return None
