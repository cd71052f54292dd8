"""`loom.memory.v1.GuideService`."""

import grpc.aio

from loom.memory.v1 import guide_pb2 as pb
from loom.memory.v1 import guide_pb2_grpc as pb_grpc
from loom_common.call import Scope, scope
from loom_common.times import format_time
from loom_memory.app.access import actor
from loom_memory.guides.api.messages import finding_to_proto, guide_to_proto, health_to_proto
from loom_memory.guides.app.guides import Guides
from loom_memory.guides.app.health import Health
from loom_memory.guides.app.mentor import Mentor
from loom_memory.guides.domain.findings import findings_of


class GuideServicer(pb_grpc.GuideServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, guides: Guides, health: Health, mentor: Mentor) -> None:
        self._guides = guides
        self._health = health
        self._mentor = mentor

    async def GetNamespaceGuide(
        self,
        request: pb.GetNamespaceGuideRequest,
        context: grpc.aio.ServicerContext[pb.GetNamespaceGuideRequest, pb.GetNamespaceGuideResponse],
    ) -> pb.GetNamespaceGuideResponse:
        """See the contract."""
        read = await self._guides.read(scope(), request.version if request.HasField("version") else None)
        guide = None if read.guide is None else guide_to_proto(read.guide)
        return pb.GetNamespaceGuideResponse(found=guide is not None, guide=guide, current_version=read.current)

    async def SetNamespaceGuide(
        self,
        request: pb.SetNamespaceGuideRequest,
        context: grpc.aio.ServicerContext[pb.SetNamespaceGuideRequest, pb.SetNamespaceGuideResponse],
    ) -> pb.SetNamespaceGuideResponse:
        """See the contract."""
        expected = request.expected_version if request.HasField("expected_version") else None
        version, changed = await self._guides.set(scope(), request.text, actor(), expected)
        return pb.SetNamespaceGuideResponse(version=version, changed=changed)

    async def ListFindings(
        self,
        request: pb.ListFindingsRequest,
        context: grpc.aio.ServicerContext[pb.ListFindingsRequest, pb.ListFindingsResponse],
    ) -> pb.ListFindingsResponse:
        """See the contract."""
        snapshot = await self._mentor.snapshot(Scope(request.org, request.namespace))
        if snapshot is None:
            return pb.ListFindingsResponse(enabled=self._mentor.is_on)
        return pb.ListFindingsResponse(
            findings=[finding_to_proto(finding) for finding in findings_of(snapshot.found, request.agent)],
            computed_at=format_time(snapshot.computed_at),
            enabled=True,
        )

    async def GetNamespaceHealth(
        self,
        request: pb.GetNamespaceHealthRequest,
        context: grpc.aio.ServicerContext[pb.GetNamespaceHealthRequest, pb.GetNamespaceHealthResponse],
    ) -> pb.GetNamespaceHealthResponse:
        """See the contract."""
        snapshot = await self._health.snapshot(Scope(request.org, request.namespace))
        if snapshot is None:
            return pb.GetNamespaceHealthResponse(enabled=self._health.is_on)
        return pb.GetNamespaceHealthResponse(
            enabled=True, computed_at=format_time(snapshot.computed_at), health=health_to_proto(snapshot.health)
        )
