"""`loom.memory.v1.ExposureService`."""

import grpc.aio

from loom.memory.v1 import exposures_pb2 as pb
from loom.memory.v1 import exposures_pb2_grpc as pb_grpc
from loom_common.times import format_time
from loom_memory.app.search.exposures import Exposures
from loom_memory.store.exposures import Exposure


class ExposureServicer(pb_grpc.ExposureServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, exposures: Exposures) -> None:
        self._exposures = exposures

    async def ListExposuresByRun(
        self,
        request: pb.ListExposuresByRunRequest,
        context: grpc.aio.ServicerContext[pb.ListExposuresByRunRequest, pb.ListExposuresByRunResponse],
    ) -> pb.ListExposuresByRunResponse:
        """See the contract."""
        found = await self._exposures.of_run(request.org, request.namespace, request.run_id, request.subject)
        return pb.ListExposuresByRunResponse(
            exposures=[_to_proto(exposure) for exposure in found], recorded=self._exposures.recorded
        )


def _to_proto(exposure: Exposure) -> pb.Exposure:
    return pb.Exposure(
        namespace=exposure.scope.namespace,
        key=exposure.identity.key,
        user_id=exposure.identity.user_id,
        session_id=exposure.identity.session_id,
        version=exposure.revision,
        op=exposure.op,
        request_id=exposure.request_id,
        subject=exposure.subject,
        consumer=exposure.consumer,
        rank=exposure.rank,
        score=exposure.score,
        shown_at=format_time(exposure.shown_at),
    )
