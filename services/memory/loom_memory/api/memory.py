"""`loom.memory.v1.MemoryService`."""

import grpc.aio

from loom.memory.v1 import memory_pb2 as pb
from loom.memory.v1 import memory_pb2_grpc as pb_grpc
from loom_common.call import scope
from loom_common.errors import LoomError
from loom_memory.api.messages import (
    draft_from_proto,
    drafts_from_proto,
    filter_from_proto,
    hit_to_proto,
    identity_from_proto,
    memory_to_proto,
    result_to_proto,
    search_query_from_proto,
    written_to_proto,
)
from loom_memory.api.repeats import Repeats
from loom_memory.app.access import actor, own_filter, own_identity
from loom_memory.app.drafts import Draft
from loom_memory.app.read import MemoryReader
from loom_memory.app.search import MemorySearch
from loom_memory.app.write import MemoryWriter

_DEFAULT_PAGE_SIZE = 50


class MemoryServicer(pb_grpc.MemoryServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, writer: MemoryWriter, reader: MemoryReader, search: MemorySearch, repeats: Repeats) -> None:
        self._writer = writer
        self._reader = reader
        self._search = search
        self._repeats = repeats

    async def SetMemory(
        self,
        request: pb.SetMemoryRequest,
        context: grpc.aio.ServicerContext[pb.SetMemoryRequest, pb.SetMemoryResponse],
    ) -> pb.SetMemoryResponse:
        """See the contract."""

        async def work() -> pb.SetMemoryResponse:
            written = await self._writer.set_one(scope(), draft_from_proto(request), actor())
            return written_to_proto(scope(), written)

        return await self._repeats.once(request, pb.SetMemoryResponse, work)

    async def SetManyMemories(
        self,
        request: pb.SetManyMemoriesRequest,
        context: grpc.aio.ServicerContext[pb.SetManyMemoriesRequest, pb.SetManyMemoriesResponse],
    ) -> pb.SetManyMemoriesResponse:
        """See the contract."""

        async def work() -> pb.SetManyMemoriesResponse:
            drafts = drafts_from_proto(request.items)
            good = {place: draft for place, draft in enumerate(drafts) if isinstance(draft, Draft)}
            outcomes = dict(zip(good, await self._writer.set_many(scope(), list(good.values()), actor()), strict=True))
            results = []
            for place, draft in enumerate(drafts):
                key = draft.identity.key if isinstance(draft, Draft) else request.items[place].key
                outcome = draft if isinstance(draft, LoomError) else outcomes[place]
                results.append(result_to_proto(key, outcome))
            refused = sum(bool(result.message) for result in results)
            return pb.SetManyMemoriesResponse(results=results, ok_count=len(results) - refused, error_count=refused)

        return await self._repeats.once(request, pb.SetManyMemoriesResponse, work)

    async def GetMemory(
        self,
        request: pb.GetMemoryRequest,
        context: grpc.aio.ServicerContext[pb.GetMemoryRequest, pb.GetMemoryResponse],
    ) -> pb.GetMemoryResponse:
        """See the contract."""
        memory = await self._reader.get(scope(), own_identity(identity_from_proto(request)))
        return pb.GetMemoryResponse(
            found=memory is not None, memory=None if memory is None else memory_to_proto(memory)
        )

    async def ListMemories(
        self,
        request: pb.ListMemoriesRequest,
        context: grpc.aio.ServicerContext[pb.ListMemoriesRequest, pb.ListMemoriesResponse],
    ) -> pb.ListMemoriesResponse:
        """See the contract."""
        page = await self._reader.list(
            scope(),
            own_filter(filter_from_proto(request)),
            page_size=request.page_size if request.HasField("page_size") else _DEFAULT_PAGE_SIZE,
            page_token=request.page_token,
        )
        return pb.ListMemoriesResponse(
            memories=[memory_to_proto(memory) for memory in page.memories], next_page_token=page.next_page_token
        )

    async def SearchMemories(
        self,
        request: pb.SearchMemoriesRequest,
        context: grpc.aio.ServicerContext[pb.SearchMemoriesRequest, pb.SearchMemoriesResponse],
    ) -> pb.SearchMemoriesResponse:
        """See the contract."""
        result = await self._search.search(scope(), search_query_from_proto(request))
        return pb.SearchMemoriesResponse(
            hits=[hit_to_proto(hit) for hit in result.hits],
            candidates_total=result.candidates_total,
            abstain_code=result.abstain_code,
            embedding_pending=result.pending,
        )

    async def DeleteMemory(
        self,
        request: pb.DeleteMemoryRequest,
        context: grpc.aio.ServicerContext[pb.DeleteMemoryRequest, pb.DeleteMemoryResponse],
    ) -> pb.DeleteMemoryResponse:
        """See the contract."""

        async def work() -> pb.DeleteMemoryResponse:
            deleted = await self._writer.delete(
                scope(),
                own_identity(identity_from_proto(request)),
                actor(),
                expected_version=request.expected_version if request.HasField("expected_version") else None,
            )
            return pb.DeleteMemoryResponse(deleted=deleted, key=request.key)

        return await self._repeats.once(request, pb.DeleteMemoryResponse, work)

    async def ListMemoryVersions(
        self,
        request: pb.ListMemoryVersionsRequest,
        context: grpc.aio.ServicerContext[pb.ListMemoryVersionsRequest, pb.ListMemoryVersionsResponse],
    ) -> pb.ListMemoryVersionsResponse:
        """See the contract."""
        page = await self._reader.history(
            scope(),
            own_identity(identity_from_proto(request)),
            page_size=request.page_size if request.HasField("page_size") else _DEFAULT_PAGE_SIZE,
            page_token=request.page_token,
        )
        return pb.ListMemoryVersionsResponse(
            versions=[memory_to_proto(memory) for memory in page.memories], next_page_token=page.next_page_token
        )
