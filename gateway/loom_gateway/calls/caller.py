"""What a request's headers say about its caller, on HTTP and MCP alike."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from loom_common.errors import InvalidArgument, Unauthenticated
from loom_common.ids import new_id

NAMESPACE_HEADER: Final = "x-loom-namespace"
RUN_ID_HEADER: Final = "x-loom-run-id"
CODE_SCOPE_HEADER: Final = "x-loom-code-scope"
IDEMPOTENCY_HEADER: Final = "idempotency-key"
REQUEST_ID_HEADER: Final = "x-request-id"
TIMEOUT_HEADER: Final = "x-loom-timeout-ms"

# Source: chosen. What identifiers of other systems look like; anything else could forge a line of a log.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/=-]+) *", re.IGNORECASE)
# gRPC metadata carries printable ASCII only.
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]*")
_LIMITS: Final = {NAMESPACE_HEADER: 128, RUN_ID_HEADER: 256, CODE_SCOPE_HEADER: 512, IDEMPOTENCY_HEADER: 256}
CALLER_HEADERS: Final = ("authorization", *_LIMITS, TIMEOUT_HEADER)
"""Headers that say who asks for what, and how long the answer is waited for."""
SINGLE_HEADERS: Final = (*CALLER_HEADERS, "content-encoding", "content-type")
"""Headers that may stand once; of two, a proxy before the gateway may have checked the other one."""
_TIMEOUT: Final = re.compile(r"[1-9][0-9]{0,8}")
_TRACE_HEADERS: Final = ("traceparent", "tracestate")
_READ: Final = frozenset((*CALLER_HEADERS, *_TRACE_HEADERS))


class Transport(StrEnum):
    """How a call came in."""

    HTTP = "http"
    MCP = "mcp"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as the headers of the request say; nothing of it is verified."""

    transport: Transport
    request_id: str
    authorization: str | None = field(default=None, repr=False)
    """Value of the `Authorization` header, as it came."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that the call carries on, by lower-case name; absent ones are left out."""
    trace: Mapping[str, str] = field(default_factory=dict)
    """W3C trace context."""
    timeout_ms: str | None = None
    """How long the caller waits, as its header says."""

    def token(self) -> str:
        """Returns the bearer token.

        Raises:
            Unauthenticated: There is none.
        """
        if not self.authorization:
            raise Unauthenticated("The call carries no token. Send one as `Authorization: Bearer <token>`.")
        match = _BEARER.fullmatch(self.authorization)
        if match is None:
            raise Unauthenticated("The Authorization header is not of the form `Bearer <token>`.")
        return match[1]

    def timeout_s(self) -> float | None:
        """Returns how long the caller waits for the answer; None where it does not say. Units: seconds.

        Raises:
            InvalidArgument: It says so in no number of milliseconds.
        """
        if self.timeout_ms is None:
            return None
        if not _TIMEOUT.fullmatch(self.timeout_ms):
            raise InvalidArgument.of(TIMEOUT_HEADER, "must be a whole number of milliseconds, 1 or more")
        return int(self.timeout_ms) / 1000

    def forwarded(self) -> dict[str, str]:
        """Returns the headers that go on to the service as they are; the run goes on with the call itself.

        Raises:
            InvalidArgument: A header is too long or holds characters that metadata cannot carry.
        """
        for name, value in self.headers.items():
            if len(value) > _LIMITS[name] or not _PRINTABLE.fullmatch(value):
                raise InvalidArgument.of(name, f"must be at most {_LIMITS[name]} printable ASCII characters")
        return {name: value for name, value in self.headers.items() if name != RUN_ID_HEADER}


def caller_of(headers: Mapping[str, str], transport: Transport, request_id: str) -> Caller:
    """Returns the caller of a request.

    The code scope counts on MCP alone: over HTTP a caller names its namespaces itself.
    """
    # Once over all: a look into Starlette's headers goes over them again each time. Of two equal ones the first counts.
    found = {name: value for name, value in reversed(list(headers.items())) if name in _READ}
    kept = {name: value for name in _LIMITS if (value := found.get(name, "").strip())}
    if transport is Transport.HTTP:
        kept.pop(CODE_SCOPE_HEADER, None)
    return Caller(
        transport=transport,
        request_id=request_id,
        authorization=found.get("authorization"),
        headers=kept,
        trace={name: found[name] for name in _TRACE_HEADERS if name in found},
        timeout_ms=found[TIMEOUT_HEADER].strip() if TIMEOUT_HEADER in found else None,
    )


def request_id_of(headers: Mapping[str, str]) -> str:
    """Returns the caller's own identifier of the request where it is one, else a new one."""
    given = headers.get(REQUEST_ID_HEADER, "")
    return given if _REQUEST_ID.fullmatch(given) else new_id()
