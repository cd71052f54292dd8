"""The HTTP client of calls to models: it adds whom they are for, and reads whom a gateway refuses.

The SDKs of openai and anthropic take it as `http_client`, and Gemini's client is one. A request that no gate let pass
is not sent. Errors raised here come out of the SDKs wrapped; `as_themselves` takes them out again.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import httpx2

from loom_common import call
from loom_common.attribution import Kind
from loom_common.errors import LoomError, ModelCallUnattributed
from loom_common.model_calls.holds import HoldKey, Holds, deferral, refusal
from loom_common.model_calls.identity import CallIdentity
from loom_common.model_calls.policy import InferencePolicy
from loom_common.model_calls.refusals import AnswerError, answer_error
from loom_common.providers.http import ProviderHttp, origin
from loom_common.providers.retry_after import retry_after_s

MAX_RETRY_AFTER_S: Final = 300.0
"""Longest wait that is passed on."""
WAITED_OUT_S: Final = 2.0
"""Longest wait that a request's call waits out itself, once."""

# How long jobs hold where a gateway that asks to wait does not say how long. Source: chosen.
_UNSAID_S: Final = 30.0

_BODY: Final = "loom_body"
"""Extension that redirects keep: the body of the request, which its copies no longer show."""


class _AskedToWait(Exception):
    """A gateway asked a request's call for a wait that is worth waiting out."""

    def __init__(self, seconds: float, error: LoomError) -> None:
        super().__init__(seconds)
        self.seconds = seconds
        self.error = error


class ModelClient(ProviderHttp):
    """Sends requests to models; whoever makes it closes it.

    Args:
        policy: What calls say of whom they are for.
        timeout_s: Longest silence of the provider.
        connect_timeout_s: Time to connect.
        holds: What jobs do not ask for a while; shared by the clients of a process.
    """

    def __init__(
        self, policy: InferencePolicy, *, timeout_s: float, connect_timeout_s: float, holds: Holds | None = None
    ) -> None:
        super().__init__(timeout_s=timeout_s, connect_timeout_s=connect_timeout_s)
        self._policy = policy
        self._holds = holds if holds is not None else Holds()
        hooks = self.event_hooks
        self.event_hooks = {
            "request": [*hooks["request"], self._sending],
            "response": [*hooks["response"], self._answered],
        }

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Sends a request, and once more where a gateway asks for a short wait first. See `AsyncClient.send`."""
        try:
            return await super().send(request, **options)  # type: ignore[arg-type]  # they are the caller's
        except _AskedToWait as asked:
            left_s = call.current().time_left_s()
            if left_s is not None and left_s <= asked.seconds:
                raise asked.error from None
            await asyncio.sleep(asked.seconds)
        try:
            return await super().send(request, **options)  # type: ignore[arg-type]  # they are the caller's
        except _AskedToWait as asked:
            raise asked.error from None

    async def _sending(self, request: httpx2.Request) -> None:
        """Says whom the request is for, anew at each hop of a redirect."""
        identity = _identity()
        if _BODY not in request.extensions:
            request.extensions[_BODY] = request.content
        policy = self._policy
        for name in (policy.customer_header, policy.feature_header, *(one.name for one in policy.identity_headers)):
            request.headers.pop(name, None)
        request.headers.update(identity.customer)
        if self._is_gateway(request):
            request.headers.update(identity.identity)
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

    def _is_gateway(self, request: httpx2.Request) -> bool:
        url = request.url
        port = url.port or {"https": 443, "http": 80}.get(url.scheme)
        return self._policy.is_gateway(url.host, port)


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
    return HoldKey(identity.key, origin(request.url), request.url.path, _model(request))


def _model(request: httpx2.Request) -> str:
    """Returns the model that the body names; empty where the path does."""
    try:
        held = json.loads(request.extensions[_BODY])
    except (ValueError, RecursionError):
        return ""
    model = held.get("model") if isinstance(held, dict) else None
    return model if isinstance(model, str) else ""
