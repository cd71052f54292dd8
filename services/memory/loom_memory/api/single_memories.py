"""The operations of `loom.memory.v1.MemoryService` about one memory and what is known of it."""

import grpc.aio

from loom.memory.v1 import memory_pb2 as pb
from loom_common.call import scope
from loom_common.times import format_optional_time
from loom_memory.api.conflict_messages import inspection_to_proto, provenance_to_proto, signals_to_proto
from loom_memory.api.messages import identity_from_proto
from loom_memory.api.repeats import Repeats
from loom_memory.app.access import actor, own_filter, own_identity
from loom_memory.app.inspection import MemoryInspector
from loom_memory.app.restoring import MemoryRestorer
from loom_memory.app.search.exposures import Exposures
from loom_memory.domain.memory import Filter
from loom_memory.store.signals import Signal


class SingleMemories:
    """Restores, inspects and judges; a part of the servicer."""

    def __init__(
        self, restorer: MemoryRestorer, inspector: MemoryInspector, repeats: Repeats, exposures: Exposures
    ) -> None:
        self._restorer = restorer
        self._inspector = inspector
        self._once = repeats.once
        self._shown = exposures.shown

    async def RestoreMemory(
        self,
        request: pb.RestoreMemoryRequest,
        context: grpc.aio.ServicerContext[pb.RestoreMemoryRequest, pb.RestoreMemoryResponse],
    ) -> pb.RestoreMemoryResponse:
        """See the contract."""

        async def work() -> pb.RestoreMemoryResponse:
            done = await self._restorer.restore(
                scope(),
                own_identity(identity_from_proto(request)),
                actor(),
                version=request.version if request.HasField("version") else None,
                expected_version=request.expected_version if request.HasField("expected_version") else None,
            )
            written = done.written
            return pb.RestoreMemoryResponse(
                key=written.identity.key,
                version=written.revision,
                stored=written.stored,
                reason=written.reason,
                restored_version=done.restored_version,
                updated_at=format_optional_time(written.updated_at),
            )

        return await self._once(request, pb.RestoreMemoryResponse, work)

    async def InspectMemory(
        self,
        request: pb.InspectMemoryRequest,
        context: grpc.aio.ServicerContext[pb.InspectMemoryRequest, pb.InspectMemoryResponse],
    ) -> pb.InspectMemoryResponse:
        """See the contract."""
        found = await self._inspector.inspect(scope(), own_identity(identity_from_proto(request)))
        self._shown([] if found is None else [found.memory])
        return pb.InspectMemoryResponse() if found is None else inspection_to_proto(found)

    async def GetMemoryProvenance(
        self,
        request: pb.GetMemoryProvenanceRequest,
        context: grpc.aio.ServicerContext[pb.GetMemoryProvenanceRequest, pb.GetMemoryProvenanceResponse],
    ) -> pb.GetMemoryProvenanceResponse:
        """See the contract."""
        identity = own_identity(identity_from_proto(request))
        found = await self._inspector.provenance(scope(), identity, own_filter(Filter()))
        return pb.GetMemoryProvenanceResponse() if found is None else provenance_to_proto(found)

    async def GiveMemoryFeedback(
        self,
        request: pb.GiveMemoryFeedbackRequest,
        context: grpc.aio.ServicerContext[pb.GiveMemoryFeedbackRequest, pb.GiveMemoryFeedbackResponse],
    ) -> pb.GiveMemoryFeedbackResponse:
        """See the contract."""
        identity = own_identity(identity_from_proto(request))
        signals = await self._inspector.feedback(scope(), identity, Signal(request.verdict), actor())
        return pb.GiveMemoryFeedbackResponse(key=identity.key, signals=signals_to_proto(signals))
