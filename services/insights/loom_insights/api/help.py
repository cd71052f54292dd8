"""`loom.insights.v1.HelpService`."""

from typing import Final, cast

import grpc

from loom.insights.v1 import help_pb2 as pb
from loom.insights.v1 import help_pb2_grpc as pb_grpc
from loom_insights.app.help import Help, HelpRead
from loom_insights.domain.documentation import Audience, Section

_TOP_K: Final = 5


class HelpServicer(pb_grpc.HelpServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, help_: Help) -> None:
        self._help = help_

    async def SearchHelp(
        self,
        request: pb.SearchHelpRequest,
        context: grpc.aio.ServicerContext[pb.SearchHelpRequest, pb.SearchHelpResponse],
    ) -> pb.SearchHelpResponse:
        """See the contract."""
        audience = cast(Audience, request.audience) if request.HasField("audience") else None
        hits = await self._help.search(request.query, request.top_k if request.HasField("top_k") else _TOP_K, audience)
        found = [
            pb.HelpHit(
                page=hit.page.path,
                breadcrumb=_breadcrumb(hit.section),
                anchor=hit.section.anchor,
                audience=hit.page.audience,
                snippet=hit.snippet,
                score=hit.score,
            )
            for hit in hits or ()
        ]
        return pb.SearchHelpResponse(available=hits is not None, hits=found)

    async def GetHelp(
        self,
        request: pb.GetHelpRequest,
        context: grpc.aio.ServicerContext[pb.GetHelpRequest, pb.GetHelpResponse],
    ) -> pb.GetHelpResponse:
        """See the contract."""
        read = await self._help.read(request.page, request.anchor, request.offset)
        if read is None:
            return pb.GetHelpResponse(available=await self._help.available(), found=False)
        return _read_to_proto(read)


def _read_to_proto(read: HelpRead) -> pb.GetHelpResponse:
    return pb.GetHelpResponse(
        available=True,
        found=True,
        page=read.page.path,
        breadcrumb=_breadcrumb(read.section or read.page.sections[0]),
        anchor=read.section.anchor if read.section is not None else "",
        audience=read.page.audience,
        text=read.text,
        next_offset=read.next_offset,
        total_chars=read.total,
        outline=[pb.HelpSection(level=each.level, title=each.title, anchor=each.anchor) for each in read.outline],
    )


def _breadcrumb(section: Section) -> str:
    return " > ".join(section.breadcrumb)
