"""`loom.memory.v1.WorkersService`."""

from typing import Final

import grpc.aio

from loom.memory.v1 import workers_pb2 as pb
from loom.memory.v1 import workers_pb2_grpc as pb_grpc
from loom_common.auth.service_credentials import OPERATOR
from loom_common.call import current
from loom_common.errors import AuthInsufficient
from loom_common.features import Feature
from loom_common.times import format_optional_time, format_time
from loom_memory.app.background import Background, Dead, WorkerView
from loom_memory.domain.extractions import Extraction

_DEFAULT_LIMIT: Final = 100


class WorkersServicer(pb_grpc.WorkersServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, background: Background) -> None:
        self._background = background

    async def ListWorkers(
        self,
        request: pb.ListWorkersRequest,
        context: grpc.aio.ServicerContext[pb.ListWorkersRequest, pb.ListWorkersResponse],
    ) -> pb.ListWorkersResponse:
        """See the contract."""
        _require_operator()
        queue = await self._background.queue()
        return pb.ListWorkersResponse(
            workers=[_worker_to_proto(worker) for worker in await self._background.workers()],
            extraction_queue=pb.ExtractionQueueStatus(
                pending_count=queue.pending,
                running_count=queue.running,
                held_count=queue.held,
                dead_count=queue.dead,
                oldest_pending_s=queue.oldest_pending_s,
            ),
        )

    async def ListDeadWork(
        self,
        request: pb.ListDeadWorkRequest,
        context: grpc.aio.ServicerContext[pb.ListDeadWorkRequest, pb.ListDeadWorkResponse],
    ) -> pb.ListDeadWorkResponse:
        """See the contract."""
        _require_operator()
        limit = request.limit if request.HasField("limit") else _DEFAULT_LIMIT
        dead = await self._background.dead(Dead(request.org, request.namespace), limit)
        return pb.ListDeadWorkResponse(work=[_dead_to_proto(row) for row in dead])

    async def RetryDeadWork(
        self,
        request: pb.RetryDeadWorkRequest,
        context: grpc.aio.ServicerContext[pb.RetryDeadWorkRequest, pb.RetryDeadWorkResponse],
    ) -> pb.RetryDeadWorkResponse:
        """See the contract."""
        _require_operator()
        wanted = Dead(request.org, request.namespace, tuple(request.ids))
        return pb.RetryDeadWorkResponse(retried_count=await self._background.retry(wanted))


def _require_operator() -> None:
    if current().peer_service != OPERATOR:
        # It tells of every organisation.
        raise AuthInsufficient("This operation is for the operator's own key.", detail={"reason": "internal"})


def _worker_to_proto(view: WorkerView) -> pb.WorkerStatus:
    last = view.last
    return pb.WorkerStatus(
        name=view.roster.feature.value,
        summary=view.roster.feature.meaning,
        enabled=view.roster.enabled,
        setting=view.roster.setting,
        holder=view.holder,
        started_at="" if last is None else format_time(last.started_at),
        finished_at="" if last is None else format_optional_time(last.finished_at),
        outcome="" if last is None else last.outcome,
        counts={} if last is None else dict(last.counts),
        broken=view.broken,
    )


def _dead_to_proto(row: Extraction) -> pb.DeadWork:
    return pb.DeadWork(
        id=row.id,
        worker=Feature.EXTRACTION_WORKER.value,
        org=row.scope.org,
        namespace=row.scope.namespace,
        enqueued_by=row.enqueued_by,
        attempt_count=row.attempts,
        reason=row.reason,
        message=row.message,
        created_at=format_time(row.created_at),
        given_up_at=format_time(row.updated_at),
    )
