"""What the client raises: a `LoomError`, of the class that its reason has."""

from collections.abc import Mapping
from typing import Any, Final

RESEND_REASONS: Final = frozenset({"OVERLOADED", "BACKEND_UNAVAILABLE", "MODEL_CALL_DEFERRED", "MODEL_POLICY_UNREAD"})
"""Reasons that pass by themselves: an idempotent operation that met one is sent again."""


class LoomError(Exception):
    """The server refused a call or failed at it. Branch on `reason`; the text is for people."""

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        status: int = 0,
        detail: Mapping[str, Any] | None = None,
        request_id: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{reason}: {message}" + (f" (request {request_id})" if request_id else ""))
        self.reason = reason
        """Reason from the server's table of errors, such as `INVALID_ARGUMENT`."""
        self.message = message
        """What happened and what to do, for people."""
        self.status = status
        """HTTP status; 0 when no answer came."""
        self.detail = dict(detail or {})
        """More about the error; `fields` names each bad field."""
        self.request_id = request_id
        """Identifier of the call in the server's logs."""
        self.retry_after_s = retry_after_s
        """When the server wants to be asked again. Units: seconds. None when it did not say."""

    @classmethod
    def from_body(cls, error: Mapping[str, Any], *, status: int = 0, retry_after_s: float | None = None) -> "LoomError":
        """Returns the error that the server's error object tells, of its reason's class.

        A reason that this client does not know yet is a plain `LoomError`.
        """
        reason = str(error.get("code", "INTERNAL"))
        return ERRORS.get(reason, LoomError)(
            reason,
            str(error.get("message", "")),
            status=status or int(error.get("status", 0)),
            detail=error.get("detail") or {},
            request_id=str(error.get("request_id", "")),
            retry_after_s=retry_after_s,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is pickled by its arguments, and these are not the constructor's.
        names = ("reason", "message", "status", "detail", "request_id", "retry_after_s")
        return (_rebuilt, (type(self), {name: getattr(self, name) for name in names}))


def _rebuilt(cls: type[LoomError], state: Mapping[str, Any]) -> LoomError:
    return cls(**state)


class InvalidArgument(LoomError):
    """A field breaks its rule; `detail.fields` names each with what is allowed."""


class MalformedRequest(LoomError):
    """The request cannot be read: no JSON, a wrong type, a duplicate key or an unknown field."""


class UnknownOp(LoomError):
    """This build has no such operation."""


class Unauthenticated(LoomError):
    """The call carries no token, or one that this deployment did not issue."""


class TokenExpired(LoomError):
    """The token's time has passed."""


class TokenRevoked(LoomError):
    """The token, one that it came from, its subject or its session was revoked."""


class AuthInsufficient(LoomError):
    """The token's role or scope is too small.

    `detail.reason` may say `org_wide`, `narrowed` or `token_expires_soon` (with `left_s`).
    """


class NotFound(LoomError):
    """A write addresses something that does not exist, or a namespace does not exist or may not be read.

    A read by key that misses is no error: it answers `found: false`.
    """


class Conflict(LoomError):
    """The expected version differs, another write won, or an idempotency key came back with another body."""


class ReadsLlmFree(LoomError):
    """The deployment promises reads without a model (`LOOM_READS_LLM_FREE`) and this call needs one."""


class PayloadTooLarge(LoomError):
    """The request is larger than is taken at once."""


class RateLimited(LoomError):
    """Too many calls of one rate class; see `Retry-After`."""


class BudgetExhausted(LoomError):
    """The namespace's daily spend on models is used up; see `Retry-After`."""


class EmbedTimeout(LoomError):
    """The embedding of the query did not come within its bound."""


class ModelCallUnattributed(LoomError):
    """A call to a model names no organisation, so it is not made."""


class ModelCallRefused(LoomError):
    """The inference gateway refused whom the call is for; `detail` holds `gateway_status` and `gateway_code`."""


class ModelCallDeferred(LoomError):
    """The inference gateway asked to wait; see `Retry-After`."""


class ModelCallsOff(LoomError):
    """The organisation has switched its calls to models off."""


class ModelPolicyUnread(LoomError):
    """Whether the organisation allows calls to models could not be read; see `Retry-After`."""


class ProviderFailed(LoomError):
    """The model's provider failed after retries, or answered something that cannot be used."""


class AnalysisUnavailable(LoomError):
    """The boundary that analysis runs behind is not proven to hold now, so no statement is run."""


class Overloaded(LoomError):
    """The service is at its limit of concurrent work; see `Retry-After`."""


class QueryRejected(LoomError):
    """The SQL statement is not allowed; the message says what is."""


class QueryLimit(LoomError):
    """The SQL statement hit a cap, which is named with how to narrow the statement."""


class AssistantUnavailable(LoomError):
    """No assistant answers here; `detail.reason` is `not_configured`, `starting` or `failing`."""


class AssistantSelfCall(LoomError):
    """The assistant was asked by an answer of its own."""


class BackendUnavailable(LoomError):
    """The database or another service cannot be reached; see `Retry-After`."""


class DeadlineExceeded(LoomError):
    """The call did not end within its time. A write may still have been made."""


class Cancelled(LoomError):
    """The caller gave up. A write may still have been made."""


class InternalError(LoomError):
    """A defect in Loom; the log holds the trace under the request id."""


class LoomConnectionError(LoomError):
    """No answer came: the server is away, or the connection broke. `reason` is `UNREACHABLE` or `TIMEOUT`."""


class LoomConfigError(LoomError):
    """The client does not know where to send or as whom. `reason` is `NOT_CONFIGURED`."""


ERRORS: Final[Mapping[str, type[LoomError]]] = {
    "INVALID_ARGUMENT": InvalidArgument,
    "MALFORMED_REQUEST": MalformedRequest,
    "UNKNOWN_OP": UnknownOp,
    "UNAUTHENTICATED": Unauthenticated,
    "TOKEN_EXPIRED": TokenExpired,
    "TOKEN_REVOKED": TokenRevoked,
    "AUTH_INSUFFICIENT": AuthInsufficient,
    "NOT_FOUND": NotFound,
    "CONFLICT": Conflict,
    "READS_LLM_FREE": ReadsLlmFree,
    "PAYLOAD_TOO_LARGE": PayloadTooLarge,
    "RATE_LIMITED": RateLimited,
    "BUDGET_EXHAUSTED": BudgetExhausted,
    "EMBED_TIMEOUT": EmbedTimeout,
    "MODEL_CALL_UNATTRIBUTED": ModelCallUnattributed,
    "MODEL_CALL_REFUSED": ModelCallRefused,
    "MODEL_CALL_DEFERRED": ModelCallDeferred,
    "MODEL_CALLS_OFF": ModelCallsOff,
    "MODEL_POLICY_UNREAD": ModelPolicyUnread,
    "PROVIDER_FAILED": ProviderFailed,
    "ANALYSIS_UNAVAILABLE": AnalysisUnavailable,
    "OVERLOADED": Overloaded,
    "QUERY_REJECTED": QueryRejected,
    "QUERY_LIMIT": QueryLimit,
    "ASSISTANT_UNAVAILABLE": AssistantUnavailable,
    "ASSISTANT_SELF_CALL": AssistantSelfCall,
    "BACKEND_UNAVAILABLE": BackendUnavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": Cancelled,
    "INTERNAL": InternalError,
}
"""The class of each reason of the server's table of errors."""
