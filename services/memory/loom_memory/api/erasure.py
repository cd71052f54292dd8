"""`loom.memory.v1.ErasureService`."""

import grpc.aio

from loom.memory.v1 import erasure_pb2 as pb
from loom.memory.v1 import erasure_pb2_grpc as pb_grpc
from loom_common.call import current, scope
from loom_common.errors import AuthInsufficient
from loom_common.times import format_optional_time, format_time
from loom_memory.app.access import actor
from loom_memory.app.erasure.desk import DEFAULT_REPLACEMENT, ErasureDesk
from loom_memory.domain.memory import Identity
from loom_memory.store.erasures import Receipt


class ErasureServicer(pb_grpc.ErasureServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, desk: ErasureDesk) -> None:
        self._desk = desk

    async def EraseUser(
        self,
        request: pb.EraseUserRequest,
        context: grpc.aio.ServicerContext[pb.EraseUserRequest, pb.EraseUserResponse],
    ) -> pb.EraseUserResponse:
        """See the contract."""
        claims = current().claims
        if request.whole_org and (claims is None or not claims.org_admin):
            raise AuthInsufficient(
                "To erase from the whole organisation takes an org admin.", detail={"reason": "org_wide"}
            )
        receipt = await self._desk.erase_user(scope(), request.user_id, actor(), whole_org=request.whole_org)
        return pb.EraseUserResponse(erasure_id=receipt.erasure_id, state=receipt.state)

    async def RedactMemories(
        self,
        request: pb.RedactMemoriesRequest,
        context: grpc.aio.ServicerContext[pb.RedactMemoriesRequest, pb.RedactMemoriesResponse],
    ) -> pb.RedactMemoriesResponse:
        """See the contract."""
        receipt = await self._desk.redact(
            scope(),
            [Identity(one.key, one.user_id, one.session_id) for one in request.memories],
            actor(),
            text=request.text,
            regex=request.regex,
            replacement=request.replacement if request.HasField("replacement") else DEFAULT_REPLACEMENT,
        )
        return pb.RedactMemoriesResponse(erasure_id=receipt.erasure_id, state=receipt.state)

    async def GetErasure(
        self,
        request: pb.GetErasureRequest,
        context: grpc.aio.ServicerContext[pb.GetErasureRequest, pb.GetErasureResponse],
    ) -> pb.GetErasureResponse:
        """See the contract."""
        receipt = await self._desk.get(scope(), request.erasure_id)
        return pb.GetErasureResponse(found=False) if receipt is None else receipt_to_proto(receipt)


def receipt_to_proto(receipt: Receipt) -> pb.GetErasureResponse:
    """Returns the message of an erasure."""
    return pb.GetErasureResponse(
        found=True,
        kind=receipt.kind,
        state=receipt.state,
        started_at=format_time(receipt.started_at),
        finished_at=format_optional_time(receipt.finished_at),
        actor=receipt.actor,
        waiting_for=receipt.waiting_for,
        tables=[
            pb.ErasedTable(
                service=one.service, table=one.table, holds_content=one.holds_content, remaining_count=one.count
            )
            for one in receipt.remaining
        ],
    )
