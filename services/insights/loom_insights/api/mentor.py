"""`loom.insights.v1.MentorService`."""

import grpc

from loom.insights.v1 import mentor_pb2 as pb
from loom.insights.v1 import mentor_pb2_grpc as pb_grpc
from loom_common import call
from loom_insights.api.findings import finding_to_proto
from loom_insights.app.help import WRITING_GUIDE, Help
from loom_insights.app.reads import NamespaceReads


class MentorServicer(pb_grpc.MentorServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, reads: NamespaceReads, help_: Help) -> None:
        self._reads = reads
        self._help = help_

    async def BriefMentor(
        self,
        request: pb.BriefMentorRequest,
        context: grpc.aio.ServicerContext[pb.BriefMentorRequest, pb.BriefMentorResponse],
    ) -> pb.BriefMentorResponse:
        """See the contract."""
        found = await self._reads.findings(call.scope(), request.agent)
        return pb.BriefMentorResponse(
            findings=[finding_to_proto(finding) for finding in found.findings],
            warning_count=sum(finding.severity == "warning" for finding in found.findings),
            computed_at=found.computed_at,
            enabled=found.enabled,
        )

    async def GetWritingGuide(
        self,
        request: pb.GetWritingGuideRequest,
        context: grpc.aio.ServicerContext[pb.GetWritingGuideRequest, pb.GetWritingGuideResponse],
    ) -> pb.GetWritingGuideResponse:
        """See the contract."""
        read = await self._help.read(WRITING_GUIDE, request.section)
        if read is None:
            available = await self._help.read(WRITING_GUIDE) is not None
            return pb.GetWritingGuideResponse(available=available, page=WRITING_GUIDE if available else "")
        return pb.GetWritingGuideResponse(available=True, found=True, text=read.text, page=WRITING_GUIDE)
