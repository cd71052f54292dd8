"""The embedding service's calibration over gRPC."""

from typing import Final

import grpc.aio

from loom.embedding.v1 import calibration_pb2 as pb
from loom.embedding.v1 import calibration_pb2_grpc as pb_grpc
from loom_common.call import Scope
from loom_memory.app.thresholds import Calibrated, Thresholds, Tier

# A search waits for this once in a while, and has what it knew before when it passes.
_TIMEOUT_S: Final = 1.0


class GrpcThresholds:
    """Asks the embedding service."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = pb_grpc.CalibrationServiceStub(channel)

    async def calibrated(self, scope: Scope) -> Calibrated:
        """See `ThresholdsPort.calibrated`."""
        request = pb.GetThresholdsRequest(org=scope.org, namespace=scope.namespace)
        answer = await self._stub.GetThresholds(request, timeout=_TIMEOUT_S)
        return _calibrated_from_proto(answer.calibration)


def _calibrated_from_proto(message: pb.Calibration) -> Calibrated:
    if not message.HasField("thresholds") or message.source not in {Tier.NAMESPACE, Tier.CLUSTER}:
        return Calibrated(message.model, None)
    gates = message.thresholds
    return Calibrated(
        message.model,
        Thresholds(
            tier=Tier(message.source),
            noise_floor=gates.noise_floor,
            abstain=gates.abstain,
            query_rewrite=gates.query_rewrite,
            hyde_fallback=gates.hyde_fallback,
            rerank_skip=gates.rerank_skip,
            conflict=gates.conflict,
            duplicate=gates.duplicate,
            calibration_hash=message.calibration_hash,
        ),
    )
