"""`loom.memory.v1.ConflictService`."""

from typing import Final

import grpc.aio

from loom.memory.v1 import conflicts_pb2 as pb
from loom.memory.v1 import conflicts_pb2_grpc as pb_grpc
from loom_common.call import scope
from loom_memory.api.conflict_messages import mark_to_proto
from loom_memory.api.repeats import Repeats
from loom_memory.app.access import actor, own_filter
from loom_memory.app.conflicts import ConflictDesk, Judgement
from loom_memory.domain.conflict import Resolution, State
from loom_memory.domain.memory import Filter
from loom_memory.store.conflicts import ConflictFilter

_DEFAULT_PAGE_SIZE: Final = 50
_ANY: Final = "any"


class ConflictServicer(pb_grpc.ConflictServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, desk: ConflictDesk, repeats: Repeats) -> None:
        self._desk = desk
        self._repeats = repeats

    async def ListConflicts(
        self,
        request: pb.ListConflictsRequest,
        context: grpc.aio.ServicerContext[pb.ListConflictsRequest, pb.ListConflictsResponse],
    ) -> pb.ListConflictsResponse:
        """See the contract."""
        visible = own_filter(Filter(user_id=request.user_id or None))
        state = request.state if request.HasField("state") else State.OPEN.value
        page = await self._desk.page(
            scope(),
            ConflictFilter(visible.user_id, visible.session_id, () if state == _ANY else (State(state),), request.key),
            page_size=request.page_size if request.HasField("page_size") else _DEFAULT_PAGE_SIZE,
            page_token=request.page_token,
        )
        return pb.ListConflictsResponse(
            conflicts=[mark_to_proto(mark) for mark in page.marks], next_page_token=page.next_page_token
        )

    async def ResolveConflict(
        self,
        request: pb.ResolveConflictRequest,
        context: grpc.aio.ServicerContext[pb.ResolveConflictRequest, pb.ResolveConflictResponse],
    ) -> pb.ResolveConflictResponse:
        """See the contract."""

        async def work() -> pb.ResolveConflictResponse:
            settled = await self._desk.settle(
                scope(),
                request.conflict_id,
                Judgement(Resolution(request.resolution), request.value, request.note),
                actor(),
                visible=own_filter(Filter()),
            )
            return pb.ResolveConflictResponse(
                conflict=mark_to_proto(settled.mark),
                newer_version=settled.newer.revision,
                older_version=settled.older.revision,
            )

        return await self._repeats.once(request, pb.ResolveConflictResponse, work)
