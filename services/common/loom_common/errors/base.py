"""The root of all errors that a caller may see."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn

import grpc
from pydantic import JsonValue

from loom_common.errors.table import ERRORS, ErrorRow, Reason


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """Names one field of a request that breaks its rule, and what is allowed."""

    field: str
    description: str


class LoomError(Exception):
    """States why a call is not answered.

    Raise one of the subclasses. The message is for people: it says what to do next and carries no secret, no other
    tenant's data, no driver's text and no path of a file. Every value in it is also in `detail`.

    Attributes:
        message: Text for people.
        detail: Facts for programs; keys in snake_case.
        retry_after_s: Units: seconds to wait before the call is sent again; None where waiting does not help.
        fields: Fields that break their rule.
        request_id: Identifier under which the peer logged it, for an error that came over the wire.
    """

    reason: ClassVar[Reason]
    default_retry_s: ClassVar[float | None] = None

    def __init__(
        self,
        message: str,
        *,
        detail: Mapping[str, JsonValue] | None = None,
        retry_after_s: float | None = None,
        fields: Sequence[FieldViolation] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail: dict[str, JsonValue] = dict(detail or {})
        self.retry_after_s = self.default_retry_s if retry_after_s is None else retry_after_s
        self.fields = tuple(fields)
        self.request_id: str | None = None

    @property
    def row(self) -> ErrorRow:
        """The row of the table of errors that it belongs to."""
        return ERRORS[self.reason]

    async def abort(self, context: grpc.aio.ServicerContext) -> NoReturn:  # type: ignore[type-arg]  # unparametrised
        """Ends the RPC with this error.

        Uses `abort` and not `abort_with_status`, which the OpenTelemetry instrumentation does not see: a span would
        say that the call went well. What the call spent so far is sent along.
        """
        # The wire form needs every subclass, and those need this module.
        from loom_common.errors.wire import status_metadata, to_status

        status = to_status(self)
        sent = context.trailing_metadata() or ()
        await context.abort(self.row.grpc, status.message, trailing_metadata=status_metadata(status, sent))
