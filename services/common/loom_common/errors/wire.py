"""Errors on the wire: `google.rpc.Status` out and in, and the HTTP body.

A status rides in trailing metadata, which peers bound at 8 KiB by default, so every part of it is bounded here: an
error that is cut short still arrives, one that is too long is lost together with its code.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from pydantic import JsonValue

from loom.common.v1 import status_pb2 as common_pb2
from loom_common import call
from loom_common.errors import kinds
from loom_common.errors.base import FieldViolation, LoomError
from loom_common.errors.table import ERRORS, Reason
from loom_common.usage import USAGE_KEY

DOMAIN: Final = "loom"
STATUS_DETAILS_KEY: Final = "grpc-status-details-bin"

Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]

# Source: grpc's default soft limit on metadata is 8 KiB; the message is sent twice (percent-encoded once, up to three
# bytes for each) and the status base64-encoded: 3 * 640 + 4096 * 4/3 leaves room for usage and trace metadata.
_MESSAGE_BYTES: Final = 640
_STATUS_BYTES: Final = 4096
_METADATA_VALUE_BYTES: Final = 512
_MAX_FIELDS: Final = 20
_MAX_RETRY_S: Final = 86_400.0

# The core library answers these itself, before any code of ours runs.
_TOO_LARGE: Final = re.compile(r"message larger than max|message too large|metadata size exceeds", re.IGNORECASE)
_TOO_MANY: Final = re.compile(r"concurrent rpc limit", re.IGNORECASE)


def to_status(error: LoomError, request_id: str | None = None) -> status_pb2.Status:
    """Returns the error as a status with exactly one `ErrorInfo`.

    Args:
        error: What happened.
        request_id: Identifier in the logs. Default: the running call's.
    """
    named = request_id if request_id is not None else call.current().request_id
    for kept in (_Kept(), _Kept(typed=False), _Kept(typed=False, fields=3)):
        status = _build_status(error, named, kept)
        if status.ByteSize() <= _STATUS_BYTES:
            return status
    # Only the metadata is left to be too long: the reason must arrive.
    return _build_status(error, named, _Kept(typed=False, fields=0, metadata=False))


@dataclass(frozen=True, slots=True)
class _Kept:
    """Which parts of an error are sent, where not all fit."""

    typed: bool = True
    metadata: bool = True
    fields: int = _MAX_FIELDS


def _build_status(error: LoomError, request_id: str, kept: _Kept) -> status_pb2.Status:
    status = status_pb2.Status(code=_number(error.row.grpc), message=_clip(error.message, _MESSAGE_BYTES))
    info = error_details_pb2.ErrorInfo(reason=error.reason.value, domain=DOMAIN)
    if kept.metadata:
        info.metadata.update(_string_metadata(error.detail))
    status.details.append(_packed(info))
    if error.retry_after_s is not None:
        retry = error_details_pb2.RetryInfo(retry_delay=_duration(error.retry_after_s))
        status.details.append(_packed(retry))
    if error.fields and kept.fields:
        bad = error_details_pb2.BadRequest()
        for violation in error.fields[: kept.fields]:
            bad.field_violations.add(
                field=_clip(violation.field, _METADATA_VALUE_BYTES),
                description=_clip(violation.description, _METADATA_VALUE_BYTES),
            )
        status.details.append(_packed(bad))
    typed = {key: value for key, value in error.detail.items() if not isinstance(value, str)}
    extra = common_pb2.ErrorDetail(request_id=_clip(request_id, 128))
    if typed and kept.typed:
        extra.detail_json = json.dumps(typed, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    if extra.request_id or extra.detail_json:
        status.details.append(_packed(extra))
    return status


def status_metadata(status: status_pb2.Status, sent: Metadata = ()) -> tuple[tuple[str, str | bytes], ...]:
    """Returns the trailing metadata of a failed call: `sent` as it is, the status, and what the call spent so far."""
    kept = tuple((str(key), value) for key, value in sent if key != STATUS_DETAILS_KEY)
    spent = call.current().usage
    if spent and all(key != USAGE_KEY for key, _ in kept):
        kept = (*kept, (USAGE_KEY, spent.to_bytes()))
    return (*kept, (STATUS_DETAILS_KEY, status.SerializeToString()))


def from_rpc_error(error: grpc.aio.AioRpcError) -> LoomError:
    """Returns the `LoomError` that a peer answered, or the one that stands for what gRPC itself met.

    Raise it `from` the original. Text that no Loom service wrote is not kept: it may name addresses.
    """
    return from_status_parts(error.code(), error.details() or "", error.trailing_metadata() or ())


def from_status_parts(code: grpc.StatusCode, message: str, metadata: Metadata) -> LoomError:
    """Returns the `LoomError` for a status code, its text and its trailing metadata."""
    status = _status_of(metadata)
    found = _from_status(status, code) if status is not None else None
    return found if found is not None else _from_code(code, message)


def _status_of(metadata: Metadata) -> status_pb2.Status | None:
    for key, value in metadata:
        if key == STATUS_DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                return None
    return None


def _from_status(status: status_pb2.Status, code: grpc.StatusCode) -> LoomError | None:
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    bad = error_details_pb2.BadRequest()
    extra = common_pb2.ErrorDetail()
    try:
        for detail in status.details:
            for part in (info, retry, bad, extra):
                detail.Unpack(part)
    except DecodeError:
        return None
    if info.domain != DOMAIN:
        return None
    kind = _kind(info.reason) or _BY_CODE.get(code, kinds.InternalError)
    detail_values: dict[str, JsonValue] = {**info.metadata, **_typed_detail(extra.detail_json)}
    delay = retry.retry_delay
    waited = _bounded_wait(delay.seconds + delay.nanos / 1e9) if retry.HasField("retry_delay") else None
    error = kind(
        status.message,
        detail=detail_values,
        retry_after_s=waited,
        fields=[FieldViolation(violation.field, violation.description) for violation in bad.field_violations],
    )
    error.request_id = extra.request_id or None
    return error


def _kind(reason: str) -> type[LoomError] | None:
    # A newer peer may know reasons that this build does not.
    return kinds.KINDS[Reason(reason)] if reason in ERRORS else None


def _typed_detail(text: str) -> dict[str, JsonValue]:
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


_BY_CODE: Final[Mapping[grpc.StatusCode, type[LoomError]]] = {
    grpc.StatusCode.CANCELLED: kinds.Cancelled,
    grpc.StatusCode.UNKNOWN: kinds.InternalError,
    grpc.StatusCode.INVALID_ARGUMENT: kinds.InvalidArgument,
    grpc.StatusCode.DEADLINE_EXCEEDED: kinds.DeadlineExceeded,
    grpc.StatusCode.NOT_FOUND: kinds.NotFound,
    grpc.StatusCode.ALREADY_EXISTS: kinds.Conflict,
    grpc.StatusCode.PERMISSION_DENIED: kinds.AuthInsufficient,
    grpc.StatusCode.UNAUTHENTICATED: kinds.Unauthenticated,
    grpc.StatusCode.RESOURCE_EXHAUSTED: kinds.RateLimited,
    grpc.StatusCode.FAILED_PRECONDITION: kinds.Conflict,
    grpc.StatusCode.ABORTED: kinds.Conflict,
    grpc.StatusCode.OUT_OF_RANGE: kinds.InvalidArgument,
    grpc.StatusCode.UNIMPLEMENTED: kinds.UnknownOp,
    grpc.StatusCode.INTERNAL: kinds.InternalError,
    grpc.StatusCode.UNAVAILABLE: kinds.BackendUnavailable,
    grpc.StatusCode.DATA_LOSS: kinds.InternalError,
}

_FOREIGN_MESSAGES: Final[Mapping[type[LoomError], str]] = {
    kinds.Cancelled: "The call was cancelled.",
    kinds.InvalidArgument: "The request was refused.",
    kinds.DeadlineExceeded: "The call did not end within its time.",
    kinds.NotFound: "What the call addresses does not exist.",
    kinds.Conflict: "The call met a state that it cannot change.",
    kinds.AuthInsufficient: "The call is not allowed.",
    kinds.Unauthenticated: "The call was not authenticated.",
    kinds.RateLimited: "Too many calls; send it again a little later.",
    kinds.Overloaded: "The service is at its limit of concurrent calls; send it again a little later.",
    kinds.PayloadTooLarge: "The message is larger than the transport takes; send less at once.",
    kinds.UnknownOp: "The service has no such operation.",
    kinds.BackendUnavailable: "A service of Loom cannot be reached; send the call again a little later.",
}


def _from_code(code: grpc.StatusCode, message: str) -> LoomError:
    kind = _BY_CODE.get(code, kinds.InternalError)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE.search(message):
        kind = kinds.PayloadTooLarge
    elif code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_MANY.search(message):
        kind = kinds.Overloaded
    return kinds.InternalError() if kind is kinds.InternalError else kind(_FOREIGN_MESSAGES[kind])


def to_http(error: LoomError, request_id: str) -> tuple[int, dict[str, str], dict[str, JsonValue]]:
    """Returns status, headers and JSON body of an HTTP answer."""
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(_bounded_wait(error.retry_after_s))))
    if error.row.http == 401:
        headers["WWW-Authenticate"] = "Bearer"
    detail: dict[str, JsonValue] = dict(error.detail)
    if error.fields:
        detail["fields"] = [{"field": one.field, "description": one.description} for one in error.fields]
    body: JsonValue = {
        "code": error.reason.value,
        "message": error.message,
        "status": error.row.http,
        "detail": detail,
        "request_id": request_id,
    }
    return error.row.http, headers, {"error": body}


def _string_metadata(detail: Mapping[str, JsonValue]) -> dict[str, str]:
    """Returns the scalars of `detail` as text, for readers of `ErrorInfo` alone."""
    found = {}
    for key, value in detail.items():
        if isinstance(value, str):
            found[key] = _clip(value, _METADATA_VALUE_BYTES)
        elif isinstance(value, (bool, int, float)):
            found[key] = json.dumps(value)
    return found


def _number(code: grpc.StatusCode) -> int:
    # grpc keeps a code as (number, name); the stubs know it as an enum without a typed value.
    number: int = code.value[0]
    return number


def _packed(message: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromMilliseconds(round(_bounded_wait(seconds) * 1000))
    return duration


def _bounded_wait(seconds: float) -> float:
    return min(max(seconds, 0.0), _MAX_RETRY_S) if math.isfinite(seconds) else _MAX_RETRY_S


def _clip(text: str, limit: int) -> str:
    """Returns `text` as valid UTF-8 of at most `limit` bytes."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return encoded.decode("utf-8")
    return encoded[: limit - 3].decode("utf-8", "ignore") + "..."
