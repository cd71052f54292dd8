"""One class per reason of the table of errors."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final

from pydantic import JsonValue

from loom_common.errors.base import FieldViolation, LoomError
from loom_common.errors.table import ERRORS, Reason


class InvalidArgument(LoomError):
    """A field breaks its rule."""

    reason = Reason.INVALID_ARGUMENT

    @classmethod
    def of(cls, field: str, description: str, **detail: JsonValue) -> "InvalidArgument":
        """Returns the error for one field; `description` completes the sentence that begins with the field's name."""
        facts: dict[str, JsonValue] = {"field": field, **detail}
        return cls(f"{field}: {description}", detail=facts, fields=(FieldViolation(field, description),))


class MalformedRequest(LoomError):
    """The request cannot be read."""

    reason = Reason.MALFORMED_REQUEST


class UnknownOp(LoomError):
    """This build has no such operation."""

    reason = Reason.UNKNOWN_OP


class Unauthenticated(LoomError):
    """The call carries no token that this deployment issued."""

    reason = Reason.UNAUTHENTICATED


class TokenExpired(LoomError):
    """The token's time has passed."""

    reason = Reason.TOKEN_EXPIRED


class TokenRevoked(LoomError):
    """The token was revoked."""

    reason = Reason.TOKEN_REVOKED


class AuthInsufficient(LoomError):
    """The token's role or scope is too small."""

    reason = Reason.AUTH_INSUFFICIENT


class NotFound(LoomError):
    """What a write addresses, or a namespace, does not exist or may not be read."""

    reason = Reason.NOT_FOUND


class Conflict(LoomError):
    """Another write won, or the expected version differs."""

    reason = Reason.CONFLICT


class ReadsLlmFree(LoomError):
    """A read needs a model and the deployment promises reads without one."""

    reason = Reason.READS_LLM_FREE


class PayloadTooLarge(LoomError):
    """The request is larger than the transport takes."""

    reason = Reason.PAYLOAD_TOO_LARGE


class RateLimited(LoomError):
    """Too many calls of one rate class."""

    reason = Reason.RATE_LIMITED
    default_retry_s: ClassVar[float | None] = 1.0


class BudgetExhausted(LoomError):
    """The namespace's daily spend on models is used up."""

    reason = Reason.BUDGET_EXHAUSTED
    # Source: chosen; spend is counted per day, so whoever raises it normally knows the time that is left.
    default_retry_s: ClassVar[float | None] = 3600.0


class EmbedTimeout(LoomError):
    """The embedding of the query did not come within its bound."""

    reason = Reason.EMBED_TIMEOUT


class ModelCallUnattributed(LoomError):
    """A call to a model names no organisation."""

    reason = Reason.MODEL_CALL_UNATTRIBUTED


class ModelCallRefused(LoomError):
    """The inference gateway refused whom the call is for."""

    reason = Reason.MODEL_CALL_REFUSED


class ModelCallDeferred(LoomError):
    """The inference gateway asked to wait."""

    reason = Reason.MODEL_CALL_DEFERRED
    default_retry_s: ClassVar[float | None] = 1.0


class ModelCallsOff(LoomError):
    """The organisation has switched its calls to models off."""

    reason = Reason.MODEL_CALLS_OFF


class ModelPolicyUnread(LoomError):
    """Whether the organisation allows calls to models could not be read."""

    reason = Reason.MODEL_POLICY_UNREAD
    default_retry_s: ClassVar[float | None] = 1.0


class ProviderFailed(LoomError):
    """The model's provider failed after retries."""

    reason = Reason.PROVIDER_FAILED


class AnalysisUnavailable(LoomError):
    """The boundary that analysis runs behind is not proven to hold."""

    reason = Reason.ANALYSIS_UNAVAILABLE


class Overloaded(LoomError):
    """The service is at its limit of concurrent work."""

    reason = Reason.OVERLOADED
    default_retry_s: ClassVar[float | None] = 1.0


class QueryRejected(LoomError):
    """The SQL statement is not allowed."""

    reason = Reason.QUERY_REJECTED


class QueryLimit(LoomError):
    """The SQL statement hit a cap."""

    reason = Reason.QUERY_LIMIT


class AssistantUnavailable(LoomError):
    """No assistant answers here."""

    reason = Reason.ASSISTANT_UNAVAILABLE


class AssistantSelfCall(LoomError):
    """The assistant was asked by an answer of its own."""

    reason = Reason.ASSISTANT_SELF_CALL


class BackendUnavailable(LoomError):
    """The database or another service cannot be reached."""

    reason = Reason.BACKEND_UNAVAILABLE
    default_retry_s: ClassVar[float | None] = 1.0


class DeadlineExceeded(LoomError):
    """The call did not end within its time."""

    reason = Reason.DEADLINE_EXCEEDED


class Cancelled(LoomError):
    """The caller gave up."""

    reason = Reason.CANCELLED


class InternalError(LoomError):
    """A defect in Loom. Its message says nothing of the cause, which stands in the log."""

    reason = Reason.INTERNAL

    def __init__(
        self,
        message: str = "Something went wrong inside Loom. The log holds the cause under this request's id.",
        *,
        detail: Mapping[str, JsonValue] | None = None,
        retry_after_s: float | None = None,
        fields: Sequence[FieldViolation] = (),
    ) -> None:
        super().__init__(message, detail=detail, retry_after_s=retry_after_s, fields=fields)


def _by_reason() -> dict[Reason, type[LoomError]]:
    found = {kind.reason: kind for kind in LoomError.__subclasses__()}
    return {reason: found[reason] for reason in ERRORS}


KINDS: Final[Mapping[Reason, type[LoomError]]] = MappingProxyType(_by_reason())
"""The class of each reason."""
