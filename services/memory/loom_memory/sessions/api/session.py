"""`loom.memory.v1.SessionService`."""

from datetime import datetime
from typing import Final

import grpc.aio

from loom.memory.v1 import session_pb2 as pb
from loom.memory.v1 import session_pb2_grpc as pb_grpc
from loom_common.call import current, scope
from loom_common.times import format_time, parse_optional_time
from loom_memory.api.repeats import Repeats
from loom_memory.app.access import actor
from loom_memory.domain.memory import to_milliseconds
from loom_memory.knowledge.app.agents import agent_of
from loom_memory.sessions.api.messages import brief_to_proto, item_to_proto, run_to_proto
from loom_memory.sessions.app.briefs import Saving, SessionBriefs
from loom_memory.sessions.app.runs import Runs
from loom_memory.sessions.app.working import Keeping, WorkingMemory
from loom_memory.sessions.domain.runs import Recording, RunFilter, RunStatus
from loom_memory.sessions.domain.working import DEFAULT_TTL_S, Session

_PAGE: Final = 20


class SessionServicer(pb_grpc.SessionServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, working: WorkingMemory, briefs: SessionBriefs, runs: Runs, repeats: Repeats) -> None:
        self._working = working
        self._briefs = briefs
        self._runs = runs
        self._repeats = repeats

    async def SetWorkingItem(
        self,
        request: pb.SetWorkingItemRequest,
        context: grpc.aio.ServicerContext[pb.SetWorkingItemRequest, pb.SetWorkingItemResponse],
    ) -> pb.SetWorkingItemResponse:
        """See the contract."""

        async def answer() -> pb.SetWorkingItemResponse:
            keeping = Keeping(
                Session(request.user_id, request.session_id),
                request.label,
                request.value,
                actor(),
                request.ttl_s if request.HasField("ttl_s") else DEFAULT_TTL_S,
                request.expected_version if request.HasField("expected_version") else None,
            )
            item, changed = await self._working.set(scope(), keeping)
            return pb.SetWorkingItemResponse(
                version=item.version, changed=changed, expires_at=format_time(item.expires_at)
            )

        return await self._repeats.once(request, pb.SetWorkingItemResponse, answer)

    async def GetWorkingMemory(
        self,
        request: pb.GetWorkingMemoryRequest,
        context: grpc.aio.ServicerContext[pb.GetWorkingMemoryRequest, pb.GetWorkingMemoryResponse],
    ) -> pb.GetWorkingMemoryResponse:
        """See the contract."""
        items = await self._working.read(scope(), request.user_id, request.session_id, request.labels)
        return pb.GetWorkingMemoryResponse(items=[item_to_proto(one) for one in items])

    async def ClearWorkingMemory(
        self,
        request: pb.ClearWorkingMemoryRequest,
        context: grpc.aio.ServicerContext[pb.ClearWorkingMemoryRequest, pb.ClearWorkingMemoryResponse],
    ) -> pb.ClearWorkingMemoryResponse:
        """See the contract."""

        async def answer() -> pb.ClearWorkingMemoryResponse:
            session = Session(request.user_id, request.session_id)
            cleared = await self._working.clear(scope(), session, request.labels, actor())
            return pb.ClearWorkingMemoryResponse(cleared_count=cleared)

        return await self._repeats.once(request, pb.ClearWorkingMemoryResponse, answer)

    async def SaveSessionBrief(
        self,
        request: pb.SaveSessionBriefRequest,
        context: grpc.aio.ServicerContext[pb.SaveSessionBriefRequest, pb.SaveSessionBriefResponse],
    ) -> pb.SaveSessionBriefResponse:
        """See the contract."""

        async def answer() -> pb.SaveSessionBriefResponse:
            agent = request.agent if request.HasField("agent") else agent_of(current().claims)
            saving = Saving(Session(request.user_id, request.session_id), actor(), agent, request.text)
            brief, changed = await self._briefs.save(scope(), saving)
            if brief is None:
                return pb.SaveSessionBriefResponse()
            return pb.SaveSessionBriefResponse(saved=True, changed=changed, brief=brief_to_proto(brief))

        return await self._repeats.once(request, pb.SaveSessionBriefResponse, answer)

    async def GetSessionBrief(
        self,
        request: pb.GetSessionBriefRequest,
        context: grpc.aio.ServicerContext[pb.GetSessionBriefRequest, pb.GetSessionBriefResponse],
    ) -> pb.GetSessionBriefResponse:
        """See the contract."""
        version = request.version if request.HasField("version") else None
        brief = await self._briefs.get(scope(), request.user_id, request.session_id, version)
        if brief is None:
            return pb.GetSessionBriefResponse()
        return pb.GetSessionBriefResponse(found=True, brief=brief_to_proto(brief))

    async def RecordRun(
        self,
        request: pb.RecordRunRequest,
        context: grpc.aio.ServicerContext[pb.RecordRunRequest, pb.RecordRunResponse],
    ) -> pb.RecordRunResponse:
        """See the contract."""

        async def answer() -> pb.RecordRunResponse:
            recording = Recording(
                request.run_id or _run_of_call(),
                Session(request.user_id, request.session_id),
                actor(),
                agent_of(current().claims),
                request.agent if request.HasField("agent") else None,
                RunStatus(request.status) if request.status else None,
                request.summary if request.HasField("summary") else None,
                _time(request.started_at, "started_at"),
                _time(request.ended_at, "ended_at"),
            )
            return pb.RecordRunResponse(run=run_to_proto(await self._runs.record(scope(), recording)))

        return await self._repeats.once(request, pb.RecordRunResponse, answer)

    async def ListRuns(
        self,
        request: pb.ListRunsRequest,
        context: grpc.aio.ServicerContext[pb.ListRunsRequest, pb.ListRunsResponse],
    ) -> pb.ListRunsResponse:
        """See the contract."""
        wanted = RunFilter(request.user_id or None, request.session_id or None, request.agent, request.status)
        limit = request.page_size if request.HasField("page_size") else _PAGE
        runs, token = await self._runs.page(scope(), wanted, limit, request.page_token)
        return pb.ListRunsResponse(runs=[run_to_proto(one) for one in runs], next_page_token=token)


def _run_of_call() -> str:
    """Returns the run that the running call belongs to, as the gateway was told; empty for none."""
    call = current()
    return call.run_id or (call.attribution.run_id if call.attribution is not None else "")


def _time(text: str, field: str) -> datetime | None:
    moment = parse_optional_time(text, field)
    return None if moment is None else to_milliseconds(moment)
