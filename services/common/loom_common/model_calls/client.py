"""The HTTP client of calls to models: it adds whom they are for, and reads whom a gateway refuses.

The SDKs of openai and anthropic take it as `http_client`, and Gemini's client is one. A request that no gate let pass
is not sent. Errors raised here come out of the SDKs wrapped; `as_themselves` takes them out again.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import httpx2

from loom_common import call
from loom_common.attribution import Kind
from loom_common.errors import LoomError, ModelCallUnattributed
from loom_common.model_calls.holds import HoldKey, Holds, deferral, refusal
from loom_common.model_calls.identity import CallIdentity
from loom_common.model_calls.policy import InferencePolicy
from loom_common.model_calls.refusals import AnswerError, answer_error
from loom_common.providers.retry_after import retry_after_s

MAX_RETRY_AFTER_S: Final = 300.0
"""Longest wait that is passed on."""
WAITED_OUT_S: Final = 2.0
"""Longest wait that a request's call waits out itself, once."""

# How long jobs hold where a gateway that asks to wait does not say how long. Source: chosen.
_UNSAID_S: Final = 30.0

_FIRST: Final = "loom_first_request"
"""Extension that redirects keep: what the request was at first."""
_CREDENTIALS: Final = ("authorization", "x-api-key", "api-key", "x-goog-api-key")


@dataclass(frozen=True, slots=True)
class _First:
    """A request before any redirect, whose copies no longer show what they carry."""

    origin: str
    body: bytes

    def model(self) -> str:
        """Returns the model that the body names; empty where the path does."""
        try:
            held = json.loads(self.body)
        except (ValueError, RecursionError):
            return ""
        model = held.get("model") if isinstance(held, dict) else None
        return model if isinstance(model, str) else ""


class _AskedToWait(Exception):
    """A gateway asked a request's call for a wait that is worth waiting out."""

    def __init__(self, seconds: float, error: LoomError) -> None:
        super().__init__(seconds)
        self.seconds = seconds
        self.error = error


class ModelClient(httpx2.AsyncClient):
    """Sends requests to models. Made by `model_client`."""

    def __init__(self, policy: InferencePolicy, holds: Holds, timeout: httpx2.Timeout) -> None:
        super().__init__(
            timeout=timeout,
            follow_redirects=True,
            limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
            event_hooks={"request": [self._sending], "response": [self._answered]},
        )
        self._policy = policy
        self._holds = holds

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Sends a request, and once more where a gateway asks for a short wait first. See `AsyncClient.send`."""
        try:
            return await super().send(request, **options)  # type: ignore[arg-type]  # as above
        except _AskedToWait as asked:
            left_s = call.current().time_left_s()
            if left_s is not None and left_s <= asked.seconds:
                raise asked.error from None
            await asyncio.sleep(asked.seconds)
        try:
            return await super().send(request, **options)  # type: ignore[arg-type]  # as above
        except _AskedToWait as asked:
            raise asked.error from None

    async def _sending(self, request: httpx2.Request) -> None:
        """Adds the headers, and takes them off where a redirect leads to who must not learn them."""
        identity = _identity()
        origin = _origin(request.url)
        first = _first(request)
        is_gateway = self._is_gateway(request)
        self._label(request, identity, customer=origin == first.origin or is_gateway, identity=is_gateway)
        if origin != first.origin:
            # The client itself drops only `authorization` when a redirect leads to another host.
            for name in _CREDENTIALS:
                request.headers.pop(name, None)
        if identity.kind is Kind.JOB and self._holds:
            self._holds.check(_key(identity, request))

    async def _answered(self, response: httpx2.Response) -> None:
        """Tells an identity's refusal from a provider's failure."""
        identity = _identity()
        request = response.request
        if response.is_success:
            if self._holds:
                self._holds.end(_key(identity, request))
            return
        if not self._is_gateway(request) or response.status_code not in self._policy.refusals.statuses:
            return
        error = answer_error(await response.aread())
        self._raise_refused(identity, request, response, error)

    def _raise_refused(
        self, identity: CallIdentity, request: httpx2.Request, response: httpx2.Response, error: AnswerError
    ) -> None:
        status, table = response.status_code, self._policy.refusals
        code = error.code or error.type or ""
        if any(rule.matches(status, error) for rule in table.refused):
            cooldown_s = self._policy.cooldown_s
            if identity.kind is Kind.JOB:
                self._holds.hold(_key(identity, request), cooldown_s, refused=True, status=status, code=code)
            raise refusal(status, code, cooldown_s if identity.kind is Kind.JOB else None)
        if not any(rule.matches(status, error) for rule in table.wait):
            return
        asked_s = retry_after_s(response.headers)
        wait_s = None if asked_s is None else min(asked_s, MAX_RETRY_AFTER_S)
        if identity.kind is Kind.JOB:
            held_s = _UNSAID_S if wait_s is None else wait_s
            self._holds.hold(_key(identity, request), held_s, refused=False, status=status, code=code)
            raise deferral(status, code, held_s)
        deferred = deferral(status, code, wait_s)
        if identity.kind is Kind.REQUEST and wait_s is not None and wait_s <= WAITED_OUT_S:
            raise _AskedToWait(wait_s, deferred)
        raise deferred

    def _label(self, request: httpx2.Request, named: CallIdentity, *, customer: bool, identity: bool) -> None:
        policy = self._policy
        for name in (policy.customer_header, policy.feature_header, *(one.name for one in policy.identity_headers)):
            if name:
                request.headers.pop(name, None)
        if customer:
            request.headers.update(named.customer)
        if identity:
            request.headers.update(named.identity)

    def _is_gateway(self, request: httpx2.Request) -> bool:
        url = request.url
        port = url.port or {"https": 443, "http": 80}.get(url.scheme)
        return self._policy.is_gateway(url.host, port)


def model_client(
    policy: InferencePolicy, *, timeout_s: float, connect_timeout_s: float, holds: Holds | None = None
) -> ModelClient:
    """Returns a client for one provider; whoever gets it closes it.

    Args:
        policy: What calls say of whom they are for.
        timeout_s: Longest silence of the provider.
        connect_timeout_s: Time to connect.
        holds: What jobs do not ask for a while; shared by the clients of a process.
    """
    timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, connect_timeout_s))
    return ModelClient(policy, holds if holds is not None else Holds(), timeout)


@contextmanager
def as_themselves() -> Iterator[None]:
    """Lets the errors of the client's hooks out of an SDK, which wraps whatever its client raises.

    Around the call of the SDK, inside of what translates the SDK's own errors.
    """
    try:
        yield
    except Exception as error:
        own = _own(error)
        if own is None or own is error:
            raise
        raise own from None


def _own(error: BaseException) -> LoomError | None:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, LoomError):
        cause = cause.__cause__
    return cause


def _identity() -> CallIdentity:
    identity = call.current().model_call
    if identity is None:
        raise ModelCallUnattributed("The call to the model was made without asking whether it may be.")
    return identity


def _key(identity: CallIdentity, request: httpx2.Request) -> HoldKey:
    return HoldKey(identity.key, _origin(request.url), request.url.path, _first(request).model())


def _origin(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _first(request: httpx2.Request) -> _First:
    held = request.extensions.get(_FIRST)
    if isinstance(held, _First):
        return held
    try:
        body = request.content
    except httpx2.RequestNotRead:  # a stream that can be read once
        body = b""
    first = request.extensions[_FIRST] = _First(_origin(request.url), body)
    return first
