"""The call that is running: who asks, for what, and what it has spent; carried by a context variable."""

import time
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loom_common.attribution import Attribution
from loom_common.usage import Usage

if TYPE_CHECKING:
    from loom_common.auth.claims import Claims
    from loom_common.model_calls.identity import CallIdentity


@dataclass(frozen=True, slots=True)
class Scope:
    """One namespace of one organisation."""

    org: str
    namespace: str


@dataclass(slots=True)
class Call:
    """What is known of one call; interceptors fill it in as the call passes them."""

    op: str = ""
    """Name of the operation, such as `memory.search`, or of the worker."""
    request_id: str = ""
    """Identifier in the logs, the ledger and the database's log."""
    claims: "Claims | None" = None
    """What the caller's token says, once it was verified."""
    peer_service: str | None = None
    """Service that calls with its own credential, such as `gateway`; None for an outside caller."""
    scope: Scope | None = None
    """Namespace that the call addresses, once it was authorized."""
    attribution: Attribution | None = None
    """Whom the call's own calls to models are for."""
    model_call: "CallIdentity | None" = None
    """What its calls to models say of that, once the gate before them let it pass."""
    usage: Usage = field(default_factory=Usage)
    """What was spent so far."""
    run_id: str | None = None
    """Run that the caller named."""
    idempotency_key: str | None = None
    """Key under which a repeated write answers as the first did."""
    transport: str = "grpc"
    """How it came in: `http`, `mcp`, `grpc` or `worker`."""
    token: str | None = field(default=None, repr=False)
    """The caller's token as it came, to be passed on unchanged."""
    deadline: float | None = None
    """When the caller stops waiting, on the clock of `time.monotonic`. Units: seconds."""

    @property
    def statement_tag(self) -> str:
        """What database statements of this call are marked with: the operation and the request's identifier."""
        return f"{self.op or 'system'} {self.request_id or '-'}"

    def time_left_s(self) -> float | None:
        """Returns how long the caller still waits, not below 0; None where it set no deadline. Units: seconds."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


_CURRENT: ContextVar[Call | None] = ContextVar("loom_call", default=None)


def current() -> Call:
    """Returns the running call; outside of any, a blank one that nobody else sees."""
    return _CURRENT.get() or Call()


def current_or_none() -> Call | None:
    """Returns the running call, or None outside of any."""
    return _CURRENT.get()


def scope() -> Scope:
    """Returns the namespace that the running call was authorized for.

    Raises:
        LookupError: The running call addresses none, which is a fault of the code that asks.
    """
    found = current().scope
    if found is None:
        raise LookupError("the running call addresses no namespace")
    return found


class _Bound:
    """A call that is the running one for a block."""

    __slots__ = ("_call", "_token")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._token: Token[Call | None]

    def __enter__(self) -> Call:
        self._token = _CURRENT.set(self._call)
        return self._call

    def __exit__(self, *_error: object) -> None:
        # An abandoned async generator is closed in another context, which never saw this call.
        try:  # noqa: SIM105 - `suppress` costs as much as all the rest here
            _CURRENT.reset(self._token)
        except ValueError:
            pass


def bind(call: Call) -> AbstractContextManager[Call]:
    """Makes `call` the running one for the block and for the tasks that it starts."""
    return _Bound(call)
