"""Answers every error in the one form that callers know."""

import asyncio
from typing import Any, NoReturn

import grpc.aio
import structlog
from google.protobuf.message import Message

from loom_common import headers
from loom_common.errors import (
    Cancelled,
    DeadlineExceeded,
    InternalError,
    LoomError,
    MalformedRequest,
    status_metadata,
    to_status,
)
from loom_common.interceptors.rpc import Proceed, Rpc, RpcInterceptor, Unparsable
from loom_common.usage import USAGE_KEY

_log = structlog.get_logger(__name__)


class ErrorInterceptor(RpcInterceptor):
    """Answers a LoomError as status and `ErrorInfo`; logs anything else and hides its text.

    The usage of the call rides in the trailing metadata, of a failed call too: what was spent was spent.
    """

    contract_only = False

    async def around(self, rpc: Rpc, request: Any, proceed: Proceed) -> Any:
        """See `RpcInterceptor.around`."""
        try:
            answer = await proceed(rpc, request)
        except grpc.aio.AbortError:
            rpc.outcome = rpc.status_code().name
            raise
        except asyncio.CancelledError:
            # The caller left or its deadline passed: nobody is there to be answered.
            rpc.outcome = (DeadlineExceeded if rpc.call.time_left_s() == 0 else Cancelled).reason.value
            raise
        except LoomError as error:
            await self._answer(rpc, error)
        except Exception:  # noqa: BLE001 - the top of a call: whatever it is, the caller gets an answer
            _log.exception("rpc_failed", op=rpc.call.op, request_id=rpc.call.request_id)
            await self._answer(rpc, InternalError())
        rpc.context.set_trailing_metadata(_trailing(rpc))
        return answer

    async def on_request(self, rpc: Rpc, message: Message | Unparsable) -> None:
        """Refuses bytes that are no message where no later interceptor does: the services of gRPC's own."""
        if rpc.op is None:
            require_parsed(message)

    async def _answer(self, rpc: Rpc, error: LoomError) -> NoReturn:
        rpc.outcome = error.reason.value
        status = to_status(error, rpc.call.request_id)
        await rpc.context.abort(
            error.row.grpc, status.message, trailing_metadata=status_metadata(status, _trailing(rpc))
        )


def _trailing(rpc: Rpc) -> tuple[tuple[str, str | bytes], ...]:
    trailing: list[tuple[str, str | bytes]] = [(headers.REQUEST_ID, rpc.call.request_id)]
    if rpc.call.usage:
        trailing.append((USAGE_KEY, rpc.call.usage.to_bytes()))
    return tuple(trailing)


def require_parsed(message: Message | Unparsable) -> Message:
    """Returns the message.

    Raises:
        MalformedRequest: The bytes that came are not one.
    """
    if isinstance(message, Unparsable):
        raise MalformedRequest("The request is not a message that this operation takes; check it against the contract.")
    return message
