"""`loom.memory.v1.MaintenanceService`."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc.aio

from loom.memory.v1 import maintenance_pb2 as pb
from loom.memory.v1 import maintenance_pb2_grpc as pb_grpc
from loom_common.auth.service_credentials import OPERATOR
from loom_common.call import current
from loom_common.errors import AuthInsufficient
from loom_memory.app.reembedding import Failure, Progress, Reembedding, ReembedOptions

_DEFAULT_BATCH_SIZE = 64


class MaintenanceServicer(pb_grpc.MaintenanceServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, reembedding: Reembedding) -> None:
        self._reembedding = reembedding

    async def Reembed(
        self,
        request: pb.ReembedRequest,
        context: grpc.aio.ServicerContext[pb.ReembedRequest, pb.ReembedResponse],
    ) -> AsyncIterator[pb.ReembedResponse]:
        """See the contract."""
        if current().peer_service != OPERATOR:
            # It spends what the operator pays for, over every organisation.
            raise AuthInsufficient("This operation is for the operator's own key.", detail={"reason": "internal"})
        async with aclosing(self._reembedding.run(options_from_proto(request))) as progresses:
            async for progress in progresses:
                yield progress_to_proto(progress)


def options_from_proto(request: pb.ReembedRequest) -> ReembedOptions:
    """Returns what a request asks for."""
    return ReembedOptions(
        org=request.org,
        namespace=request.namespace,
        batch_size=request.batch_size if request.HasField("batch_size") else _DEFAULT_BATCH_SIZE,
        dry_run=request.dry_run,
        key_only=request.key_only,
        resume=request.resume,
        delete_old=request.delete_old,
        staged=request.staged,
        collection=request.in_database,
    )


def progress_to_proto(progress: Progress) -> pb.ReembedResponse:
    """Returns the message of a progress."""
    return pb.ReembedResponse(
        model=progress.space.model,
        dim=progress.space.dim,
        table=progress.table,
        org=progress.scope.org,
        namespace=progress.scope.namespace,
        total_count=progress.total,
        done_count=progress.done,
        skipped_count=progress.skipped,
        failed_count=progress.failed,
        deleted_count=progress.deleted,
        withheld_count=progress.withheld,
        failures=[_failure_to_proto(failure) for failure in progress.failures],
        finished=progress.finished,
    )


def _failure_to_proto(failure: Failure) -> pb.ReembedFailure:
    return pb.ReembedFailure(
        table=failure.table,
        org=failure.scope.org,
        namespace=failure.scope.namespace,
        key=failure.key,
        reason=failure.reason,
    )
