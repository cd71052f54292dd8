"""What the client raises."""

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


class LoomConnectionError(LoomError):
    """No answer came: the server is away, or the connection broke. `reason` is `UNREACHABLE` or `TIMEOUT`."""


class LoomConfigError(LoomError):
    """The client does not know where to send or as whom. `reason` is `NOT_CONFIGURED`."""
