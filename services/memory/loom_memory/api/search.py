"""`loom.memory.v1.SearchService`."""

from typing import Final

import grpc.aio

from loom.memory.v1 import memory_pb2
from loom.memory.v1 import search_pb2 as pb
from loom.memory.v1 import search_pb2_grpc as pb_grpc
from loom_common.call import scope
from loom_memory.api.messages import hit_to_proto
from loom_memory.app.access import own_filter
from loom_memory.app.search import SearchQuery
from loom_memory.app.unified import MemorySection, NamespaceScope, UnifiedSearch
from loom_memory.domain.excerpts import Bodies, shown_value
from loom_memory.domain.memory import Filter, Hit

_DEFAULT_TOP_K: Final = 5


class SearchServicer(pb_grpc.SearchServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, search: UnifiedSearch) -> None:
        self._search = search

    async def Search(
        self, request: pb.SearchRequest, context: grpc.aio.ServicerContext[pb.SearchRequest, pb.SearchResponse]
    ) -> pb.SearchResponse:
        """See the contract."""
        query = SearchQuery(
            text=request.query,
            wanted=own_filter(Filter(tags=tuple(sorted(set(request.tags))))),
            top_k=request.top_k if request.HasField("top_k") else _DEFAULT_TOP_K,
        )
        reach = (
            NamespaceScope(request.namespace_scope) if request.HasField("namespace_scope") else NamespaceScope.ALL_MINE
        )
        section = await self._search.search(scope(), query, reach)
        bodies = Bodies(request.bodies) if request.HasField("bodies") else Bodies.EXCERPT
        return pb.SearchResponse(memory=section_to_proto(section, bodies))


def section_to_proto(section: MemorySection, bodies: Bodies) -> pb.MemorySection:
    """Returns the message of a section, its texts as long as asked for."""
    return pb.MemorySection(
        hits=[_hit_to_proto(hit, bodies) for hit in section.result.hits],
        candidates_total=section.result.candidates_total,
        abstain_code=section.result.abstain_code,
        error=section.error,
        embedding_pending=section.result.pending,
    )


def _hit_to_proto(hit: Hit, bodies: Bodies) -> memory_pb2.MemoryHit:
    message = hit_to_proto(hit)
    message.memory.value, message.memory.value_truncated = shown_value(hit.memory.content, bodies)
    return message
