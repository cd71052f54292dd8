"""The one table of errors: each reason with its gRPC code, its HTTP status and whether clients send the call again."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import grpc


class Reason(StrEnum):
    """Stable code of an error, as clients read it: `error.code` over HTTP, `ErrorInfo.reason` over gRPC."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    MALFORMED_REQUEST = "MALFORMED_REQUEST"
    UNKNOWN_OP = "UNKNOWN_OP"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    TOKEN_EXPIRED = "TOKEN_EXPIRED"  # noqa: S105 - the name of an error
    TOKEN_REVOKED = "TOKEN_REVOKED"  # noqa: S105 - the name of an error
    AUTH_INSUFFICIENT = "AUTH_INSUFFICIENT"
    NOT_FOUND = "NOT_FOUND"
    CONFLICT = "CONFLICT"
    READS_LLM_FREE = "READS_LLM_FREE"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    RATE_LIMITED = "RATE_LIMITED"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"
    EMBED_TIMEOUT = "EMBED_TIMEOUT"
    MODEL_CALL_UNATTRIBUTED = "MODEL_CALL_UNATTRIBUTED"
    MODEL_CALL_REFUSED = "MODEL_CALL_REFUSED"
    MODEL_CALL_DEFERRED = "MODEL_CALL_DEFERRED"
    MODEL_CALLS_OFF = "MODEL_CALLS_OFF"
    MODEL_POLICY_UNREAD = "MODEL_POLICY_UNREAD"
    PROVIDER_FAILED = "PROVIDER_FAILED"
    ANALYSIS_UNAVAILABLE = "ANALYSIS_UNAVAILABLE"
    OVERLOADED = "OVERLOADED"
    QUERY_REJECTED = "QUERY_REJECTED"
    QUERY_LIMIT = "QUERY_LIMIT"
    ASSISTANT_UNAVAILABLE = "ASSISTANT_UNAVAILABLE"
    ASSISTANT_SELF_CALL = "ASSISTANT_SELF_CALL"
    BACKEND_UNAVAILABLE = "BACKEND_UNAVAILABLE"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """What one reason means on every transport."""

    reason: Reason
    grpc: grpc.StatusCode
    http: int
    resend: bool
    """Whether a client sends an idempotent call again by itself, after the error's wait."""
    when: str
    """One sentence for the manual: when it is answered."""


_CODE = grpc.StatusCode

_ROWS: Final = (
    ErrorRow(
        Reason.INVALID_ARGUMENT,
        _CODE.INVALID_ARGUMENT,
        422,
        False,
        "A field breaks its rule; `detail.fields` names each with what is allowed.",
    ),
    ErrorRow(
        Reason.MALFORMED_REQUEST,
        _CODE.INVALID_ARGUMENT,
        400,
        False,
        "The request cannot be read: no JSON, a wrong type, a duplicate key or an unknown field.",
    ),
    ErrorRow(Reason.UNKNOWN_OP, _CODE.UNIMPLEMENTED, 404, False, "This build has no such operation."),
    ErrorRow(
        Reason.UNAUTHENTICATED,
        _CODE.UNAUTHENTICATED,
        401,
        False,
        "The call carries no token, or one that this deployment did not issue.",
    ),
    ErrorRow(Reason.TOKEN_EXPIRED, _CODE.UNAUTHENTICATED, 401, False, "The token's time has passed."),
    ErrorRow(
        Reason.TOKEN_REVOKED,
        _CODE.UNAUTHENTICATED,
        401,
        False,
        "The token, one that it came from, its subject or its session was revoked.",
    ),
    ErrorRow(
        Reason.AUTH_INSUFFICIENT,
        _CODE.PERMISSION_DENIED,
        403,
        False,
        "The token's role or scope is too small; `detail.reason` may say `org_wide`, `narrowed` or "
        "`token_expires_soon` (with `left_s`).",
    ),
    ErrorRow(
        Reason.NOT_FOUND,
        _CODE.NOT_FOUND,
        404,
        False,
        "A write addresses something that does not exist, or a namespace does not exist or may not be read. "
        "A read by key that misses is no error: it answers `found: false`.",
    ),
    ErrorRow(
        Reason.CONFLICT,
        _CODE.ABORTED,
        409,
        False,
        "The expected version differs, another write won, or an idempotency key came back with another body.",
    ),
    ErrorRow(
        Reason.READS_LLM_FREE,
        _CODE.FAILED_PRECONDITION,
        409,
        False,
        "The deployment promises reads without a model (`LOOM_READS_LLM_FREE`) and this call needs one.",
    ),
    ErrorRow(
        Reason.PAYLOAD_TOO_LARGE,
        _CODE.RESOURCE_EXHAUSTED,
        413,
        False,
        "The request is larger than is taken at once.",
    ),
    ErrorRow(
        Reason.RATE_LIMITED,
        _CODE.RESOURCE_EXHAUSTED,
        429,
        False,
        "Too many calls of one rate class; see `Retry-After`.",
    ),
    ErrorRow(
        Reason.BUDGET_EXHAUSTED,
        _CODE.RESOURCE_EXHAUSTED,
        429,
        False,
        "The namespace's daily spend on models is used up; see `Retry-After`.",
    ),
    ErrorRow(
        Reason.EMBED_TIMEOUT,
        _CODE.UNAVAILABLE,
        503,
        False,
        "The embedding of the query did not come within its bound.",
    ),
    ErrorRow(
        Reason.MODEL_CALL_UNATTRIBUTED,
        _CODE.FAILED_PRECONDITION,
        500,
        False,
        "A call to a model names no organisation, so it is not made.",
    ),
    ErrorRow(
        Reason.MODEL_CALL_REFUSED,
        _CODE.PERMISSION_DENIED,
        403,
        False,
        "The inference gateway refused whom the call is for; `detail` holds `gateway_status` and `gateway_code`.",
    ),
    ErrorRow(
        Reason.MODEL_CALL_DEFERRED,
        _CODE.UNAVAILABLE,
        503,
        True,
        "The inference gateway asked to wait; see `Retry-After`.",
    ),
    ErrorRow(
        Reason.MODEL_CALLS_OFF,
        _CODE.PERMISSION_DENIED,
        403,
        False,
        "The organisation has switched its calls to models off.",
    ),
    ErrorRow(
        Reason.MODEL_POLICY_UNREAD,
        _CODE.UNAVAILABLE,
        503,
        True,
        "Whether the organisation allows calls to models could not be read; see `Retry-After`.",
    ),
    ErrorRow(
        Reason.PROVIDER_FAILED,
        _CODE.UNAVAILABLE,
        502,
        False,
        "The model's provider failed after retries, or answered something that cannot be used.",
    ),
    ErrorRow(
        Reason.ANALYSIS_UNAVAILABLE,
        _CODE.UNAVAILABLE,
        503,
        False,
        "The boundary that analysis runs behind is not proven to hold now, so no statement is run.",
    ),
    ErrorRow(
        Reason.OVERLOADED,
        _CODE.UNAVAILABLE,
        503,
        True,
        "The service is at its limit of concurrent work; see `Retry-After`.",
    ),
    ErrorRow(
        Reason.QUERY_REJECTED,
        _CODE.INVALID_ARGUMENT,
        422,
        False,
        "The SQL statement is not allowed; the message says what is.",
    ),
    ErrorRow(
        Reason.QUERY_LIMIT,
        _CODE.RESOURCE_EXHAUSTED,
        429,
        False,
        "The SQL statement hit a cap, which is named with how to narrow the statement.",
    ),
    ErrorRow(
        Reason.ASSISTANT_UNAVAILABLE,
        _CODE.UNAVAILABLE,
        503,
        False,
        "No assistant answers here; `detail.reason` is `not_configured`, `starting` or `failing`.",
    ),
    ErrorRow(
        Reason.ASSISTANT_SELF_CALL,
        _CODE.PERMISSION_DENIED,
        403,
        False,
        "The assistant was asked by an answer of its own.",
    ),
    ErrorRow(
        Reason.BACKEND_UNAVAILABLE,
        _CODE.UNAVAILABLE,
        503,
        True,
        "The database or another service cannot be reached; see `Retry-After`.",
    ),
    ErrorRow(
        Reason.DEADLINE_EXCEEDED,
        _CODE.DEADLINE_EXCEEDED,
        504,
        False,
        "The call did not end within its time. A write may still have been made.",
    ),
    ErrorRow(Reason.CANCELLED, _CODE.CANCELLED, 499, False, "The caller gave up. A write may still have been made."),
    ErrorRow(
        Reason.INTERNAL,
        _CODE.INTERNAL,
        500,
        False,
        "A defect in Loom; the log holds the trace under the request id.",
    ),
)

ERRORS: Final[Mapping[Reason, ErrorRow]] = MappingProxyType({row.reason: row for row in _ROWS})
"""Every reason with its row, in the order of the manual."""
