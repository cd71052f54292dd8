"""`loom.memory.v1.ProcedureService`."""

from typing import Final

import grpc.aio

from loom.memory.v1 import procedure_pb2 as pb
from loom.memory.v1 import procedure_pb2_grpc as pb_grpc
from loom_common.call import scope
from loom_common.times import format_time
from loom_memory.api.repeats import Repeats
from loom_memory.app.access import actor
from loom_memory.app.owned_items import own_user_id
from loom_memory.procedures.app.match import ProcedureMatch
from loom_memory.procedures.app.procedures import Procedures, Saving
from loom_memory.procedures.domain.procedures import Kind, Procedure

_PAGE: Final = 50
_TOP_K: Final = 5


class ProcedureServicer(pb_grpc.ProcedureServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, procedures: Procedures, match: ProcedureMatch, repeats: Repeats) -> None:
        self._procedures = procedures
        self._match = match
        self._repeats = repeats

    async def SaveProcedure(
        self,
        request: pb.SaveProcedureRequest,
        context: grpc.aio.ServicerContext[pb.SaveProcedureRequest, pb.SaveProcedureResponse],
    ) -> pb.SaveProcedureResponse:
        """See the contract."""

        async def answer() -> pb.SaveProcedureResponse:
            saving = Saving(
                request.situation,
                request.body,
                actor(),
                Kind(request.kind or Kind.PROCEDURE),
                own_user_id(request.user_id),
                request.agent,
                request.procedure_id,
                request.expected_version if request.HasField("expected_version") else None,
            )
            saved, changed = await self._procedures.save(scope(), saving)
            return pb.SaveProcedureResponse(procedure_id=saved.id, version=saved.version, changed=changed)

        return await self._repeats.once(request, pb.SaveProcedureResponse, answer)

    async def GetProcedure(
        self,
        request: pb.GetProcedureRequest,
        context: grpc.aio.ServicerContext[pb.GetProcedureRequest, pb.GetProcedureResponse],
    ) -> pb.GetProcedureResponse:
        """See the contract."""
        found = await self._procedures.get(scope(), request.procedure_id)
        if found is None:
            return pb.GetProcedureResponse()
        return pb.GetProcedureResponse(found=True, procedure=procedure_to_proto(found))

    async def ListProcedures(
        self,
        request: pb.ListProceduresRequest,
        context: grpc.aio.ServicerContext[pb.ListProceduresRequest, pb.ListProceduresResponse],
    ) -> pb.ListProceduresResponse:
        """See the contract."""
        limit = request.page_size if request.HasField("page_size") else _PAGE
        found = await self._procedures.page(scope(), request.page_token, request.kind, limit + 1)
        shown = found[:limit]
        return pb.ListProceduresResponse(
            procedures=[procedure_to_proto(one) for one in shown],
            next_page_token=shown[-1].id if len(found) > limit else "",
        )

    async def MatchProcedures(
        self,
        request: pb.MatchProceduresRequest,
        context: grpc.aio.ServicerContext[pb.MatchProceduresRequest, pb.MatchProceduresResponse],
    ) -> pb.MatchProceduresResponse:
        """See the contract."""
        top_k = request.top_k if request.HasField("top_k") else _TOP_K
        hits = await self._match.match(scope(), request.situation, top_k)
        return pb.MatchProceduresResponse(
            hits=[
                pb.ProcedureMatch(
                    procedure=procedure_to_proto(hit.procedure), similarity=hit.similarity, by_words=hit.by_words
                )
                for hit in hits
            ]
        )

    async def DeleteProcedure(
        self,
        request: pb.DeleteProcedureRequest,
        context: grpc.aio.ServicerContext[pb.DeleteProcedureRequest, pb.DeleteProcedureResponse],
    ) -> pb.DeleteProcedureResponse:
        """See the contract."""

        async def answer() -> pb.DeleteProcedureResponse:
            deleted = await self._procedures.delete(scope(), request.procedure_id, actor())
            return pb.DeleteProcedureResponse(deleted=deleted)

        return await self._repeats.once(request, pb.DeleteProcedureResponse, answer)

    async def RecordOutcome(
        self,
        request: pb.RecordOutcomeRequest,
        context: grpc.aio.ServicerContext[pb.RecordOutcomeRequest, pb.RecordOutcomeResponse],
    ) -> pb.RecordOutcomeResponse:
        """See the contract."""

        async def answer() -> pb.RecordOutcomeResponse:
            uses, successes = await self._procedures.record(
                scope(), request.procedure_id, request.outcome_id, actor(), succeeded=request.succeeded
            )
            return pb.RecordOutcomeResponse(use_count=uses, success_count=successes)

        return await self._repeats.once(request, pb.RecordOutcomeResponse, answer)


def procedure_to_proto(one: Procedure) -> pb.Procedure:
    """Returns a procedure as it is now."""
    return pb.Procedure(
        procedure_id=one.id,
        kind=one.kind.value,
        situation=one.situation,
        body=one.body,
        user_id=one.user_id,
        agent=one.agent,
        version=one.version,
        use_count=one.uses,
        success_count=one.successes,
        actor=one.actor,
        created_at=format_time(one.created_at),
        updated_at=format_time(one.updated_at),
    )
