"""`loom.memory.v1.SearchService`."""

import grpc.aio

from loom.memory.v1 import search_pb2 as pb
from loom.memory.v1 import search_pb2_grpc as pb_grpc
from loom_common.call import scope
from loom_memory.api.search_messages import (
    section_from_answer,
    unified_asked_again,
    unified_presentation,
    unified_query_from_proto,
)
from loom_memory.app.search.answering import Answering
from loom_memory.app.unified import NamespaceScope


class SearchServicer(pb_grpc.SearchServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering

    async def Search(
        self, request: pb.SearchRequest, context: grpc.aio.ServicerContext[pb.SearchRequest, pb.SearchResponse]
    ) -> pb.SearchResponse:
        """See the contract."""
        reach = (
            NamespaceScope(request.namespace_scope) if request.HasField("namespace_scope") else NamespaceScope.ALL_MINE
        )
        answer = await self._answering.answer(
            scope(),
            unified_query_from_proto(request),
            reach,
            unified_presentation(request),
            lambda: unified_asked_again(request),
            in_section=True,
        )
        return pb.SearchResponse(memory=section_from_answer(answer, explain=request.explain))
