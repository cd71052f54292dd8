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
    identity_from_proto,
    memory_to_proto,
    result_to_proto,
    version_to_proto,
    written_to_proto,
)
from loom_memory.api.repeats import Repeats
from loom_memory.api.search_messages import (
    asked_again,
    presentation_from_proto,
    reach_from_proto,
    response_from_answer,
    search_query_from_proto,
)
from loom_memory.api.single_memories import SingleMemories
from loom_memory.app.access import actor, own_filter, own_identity
from loom_memory.app.drafts import Draft, Outcome
from loom_memory.app.inspection import MemoryInspector
from loom_memory.app.read import MemoryReader
from loom_memory.app.restoring import MemoryRestorer
from loom_memory.app.search.answering import Answering
from loom_memory.app.search.exposures import Exposures
from loom_memory.app.write import MemoryWriter

_DEFAULT_PAGE_SIZE = 50


class MemoryServicer(SingleMemories, pb_grpc.MemoryServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(
        self,
        writer: MemoryWriter,
        reader: MemoryReader,
        answering: Answering,
        exposures: Exposures,
        restorer: MemoryRestorer,
        inspector: MemoryInspector,
        repeats: Repeats,
    ) -> None:
        super().__init__(restorer, inspector, repeats, exposures)
        self._writer = writer
        self._reader = reader
        self._answering = answering
        self._exposures = exposures
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
            drafts = drafts_from_proto(request.items, verbatim=request.verbatim)
            good = {place: draft for place, draft in enumerate(drafts) if isinstance(draft, Draft)}
            outcomes = dict(zip(good, await self._writer.set_many(scope(), list(good.values()), actor()), strict=True))
            results = []
            for place, draft in enumerate(drafts):
                key = draft.identity.key if isinstance(draft, Draft) else request.items[place].key
                outcome = draft if isinstance(draft, LoomError) else outcomes[place]
                results.append(result_to_proto(key, outcome))
            refused = sum(
                isinstance(draft, LoomError) or _is_refused(outcomes[place]) for place, draft in enumerate(drafts)
            )
            return pb.SetManyMemoriesResponse(results=results, ok_count=len(results) - refused, error_count=refused)

        return await self._repeats.once(request, pb.SetManyMemoriesResponse, work)

    async def GetMemory(
        self,
        request: pb.GetMemoryRequest,
        context: grpc.aio.ServicerContext[pb.GetMemoryRequest, pb.GetMemoryResponse],
    ) -> pb.GetMemoryResponse:
        """See the contract."""
        memory = await self._reader.get(scope(), own_identity(identity_from_proto(request)))
        self._exposures.shown([] if memory is None else [memory])
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
        self._exposures.shown(page.memories)
        return pb.ListMemoriesResponse(
            memories=[memory_to_proto(memory) for memory in page.memories], next_page_token=page.next_page_token
        )

    async def SearchMemories(
        self,
        request: pb.SearchMemoriesRequest,
        context: grpc.aio.ServicerContext[pb.SearchMemoriesRequest, pb.SearchMemoriesResponse],
    ) -> pb.SearchMemoriesResponse:
        """See the contract."""
        answer = await self._answering.answer(
            scope(),
            search_query_from_proto(request),
            reach_from_proto(request),
            presentation_from_proto(request),
            lambda: asked_again(request),
        )
        return response_from_answer(answer, explain=request.explain)

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
            versions=[
                version_to_proto(memory, at) for memory, at in zip(page.memories, page.superseded_at, strict=True)
            ],
            next_page_token=page.next_page_token,
        )


def _is_refused(outcome: Outcome) -> bool:
    return isinstance(outcome, LoomError) or outcome.is_refused
