"""Serves `loom.embedding.v1.CalibrationService`."""

from collections.abc import Iterable

import grpc

from loom.embedding.v1 import calibration_pb2 as pb
from loom.embedding.v1 import calibration_pb2_grpc as pb_grpc
from loom_common.call import Scope, scope
from loom_common.errors import InvalidArgument
from loom_common.times import format_optional_time
from loom_embedding.app.calibration import Calibrations, InForce
from loom_embedding.app.namespace_calibration import NamespaceCalibrations
from loom_embedding.domain.calibration import Pair
from loom_embedding.domain.thresholds import Thresholds

Context = grpc.aio.ServicerContext[object, object]


class CalibrationServicer(pb_grpc.CalibrationServiceServicer):
    """Translates between messages and use cases; the interceptor answers a LoomError."""

    def __init__(self, calibrations: Calibrations, namespaces: NamespaceCalibrations) -> None:
        self._calibrations = calibrations
        self._namespaces = namespaces

    async def GetCalibration(self, request: pb.GetCalibrationRequest, context: Context) -> pb.GetCalibrationResponse:
        """Shows what is in force for the caller's namespace."""
        return pb.GetCalibrationResponse(calibration=in_force_to_proto(await self._calibrations.in_force(scope())))

    async def CalibrateNamespace(
        self, request: pb.CalibrateNamespaceRequest, context: Context
    ) -> pb.CalibrateNamespaceResponse:
        """Calibrates the caller's namespace, or removes its calibration."""
        if request.reset:
            found = await self._namespaces.remove(scope())
        else:
            found = await self._namespaces.calibrate(
                scope(),
                pairs_from_proto("similar", request.similar),
                pairs_from_proto("distractors", request.distractors),
            )
        return pb.CalibrateNamespaceResponse(calibration=in_force_to_proto(found))

    async def GetThresholds(self, request: pb.GetThresholdsRequest, context: Context) -> pb.GetThresholdsResponse:
        """Tells a service what is in force for the namespace that it names."""
        found = await self._calibrations.in_force(Scope(request.org, request.namespace))
        return pb.GetThresholdsResponse(calibration=in_force_to_proto(found))


def pairs_from_proto(field: str, pairs: Iterable[pb.TextPair]) -> list[Pair]:
    """Returns pairs of texts.

    Args:
        field: Name of the field that holds them, for the error.
        pairs: The messages.

    Raises:
        InvalidArgument: A pair is not two texts. Its cosine is 1 whatever the model, and so would the gates be.
    """
    found = []
    for number, pair in enumerate(pairs):
        one, other = pair.one.split(), pair.other.split()
        if not one or not other:
            raise InvalidArgument.of(f"{field}[{number}]", "must hold text in both")
        if one == other:
            raise InvalidArgument.of(f"{field}[{number}]", "must be two texts, and both are the same")
        found.append(Pair(pair.one, pair.other))
    return found


def in_force_to_proto(found: InForce) -> pb.Calibration:
    """Returns the message for what is in force."""
    return pb.Calibration(
        source=found.tier.value,
        model=found.model,
        noise_floor=found.noise_floor,
        thresholds=thresholds_to_proto(found.thresholds) if found.thresholds is not None else None,
        calibration_hash=found.digest,
        calibrated_at=format_optional_time(found.calibrated_at),
    )


def thresholds_to_proto(thresholds: Thresholds) -> pb.Thresholds:
    """Returns the message for seven gates."""
    return pb.Thresholds(
        noise_floor=thresholds.noise_floor,
        abstain=thresholds.abstain,
        query_rewrite=thresholds.query_rewrite,
        hyde_fallback=thresholds.hyde_fallback,
        rerank_skip=thresholds.rerank_skip,
        conflict=thresholds.conflict,
        duplicate=thresholds.duplicate,
    )
