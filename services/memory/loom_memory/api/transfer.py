"""`loom.memory.v1.TransferService`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import grpc.aio

from loom.memory.v1 import transfer_pb2 as pb
from loom.memory.v1 import transfer_pb2_grpc as pb_grpc
from loom_common.auth.claims import Role
from loom_common.call import current, scope
from loom_common.errors import InvalidArgument, LoomError, MalformedRequest
from loom_memory.app.access import actor, own_filter, own_identity
from loom_memory.app.bulk import BulkPolicy
from loom_memory.app.export import ExportQuery, MemoryExport
from loom_memory.app.importing import LineOutcome, MemoryImport
from loom_memory.domain.memory import Filter

_SKIP = "skip"


class TransferServicer(pb_grpc.TransferServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, export: MemoryExport, imports: MemoryImport) -> None:
        self._export = export
        self._imports = imports

    async def ExportMemories(
        self,
        request: pb.ExportMemoriesRequest,
        context: grpc.aio.ServicerContext[pb.ExportMemoriesRequest, pb.ExportMemoriesResponse],
    ) -> AsyncIterator[pb.ExportMemoriesResponse]:
        """See the contract."""
        count = 0
        async with aclosing(self._export.run(scope(), export_query_from_proto(request))) as parts:
            async for part in parts:
                count = part.count
                yield pb.ExportMemoriesResponse(lines=part.lines, cursor=part.cursor, count=count)
        yield pb.ExportMemoriesResponse(finished=True, count=count)

    async def ImportMemories(
        self,
        request_iterator: AsyncIterator[pb.ImportMemoriesRequest],
        context: grpc.aio.ServicerContext[pb.ImportMemoriesRequest, pb.ImportMemoriesResponse],
    ) -> AsyncIterator[pb.ImportMemoriesResponse]:
        """See the contract."""
        requests = aiter(request_iterator)
        try:
            first = await anext(requests)
        except StopAsyncIteration:
            raise MalformedRequest("The call carries no message; send at least one with lines.") from None
        policy = policy_from_proto(first)
        batches = _batches(first, requests)
        async with aclosing(self._imports.run(scope(), batches, policy, own_identity)) as parts:
            async for outcomes in parts:
                yield outcomes_to_proto(outcomes)


async def _batches(
    first: pb.ImportMemoriesRequest, more: AsyncIterator[pb.ImportMemoriesRequest]
) -> AsyncIterator[Sequence[bytes]]:
    yield first.lines
    async for request in more:
        for field in ("org", "namespace"):
            if request.HasField(field) and getattr(request, field) != getattr(first, field):
                raise InvalidArgument.of(field, "differs from that of the first message; leave it out")
        yield request.lines


def export_query_from_proto(request: pb.ExportMemoriesRequest) -> ExportQuery:
    """Returns what a request asks for, narrowed to what its token may read."""
    wanted = Filter(
        user_id=request.user_id or None,
        session_id=request.session_id or None,
        kinds=tuple(sorted(set(request.kinds))),
        tags=tuple(sorted(set(request.tags))),
    )
    return ExportQuery(
        wanted=own_filter(wanted),
        with_vectors=request.with_vectors,
        with_versions=request.with_versions,
        cursor=request.cursor,
    )


def policy_from_proto(request: pb.ImportMemoriesRequest) -> BulkPolicy:
    """Returns how the first message of an import wants its lines stored."""
    claims = current().claims
    role = claims.role_on(scope().namespace) if claims is not None and not claims.is_narrow else None
    return BulkPolicy(
        actor=actor(),
        keeps_provenance=role is not None and role >= Role.ADMIN,
        skips_existing=request.if_exists == _SKIP,
        is_dry=request.dry_run,
    )


def outcomes_to_proto(outcomes: Sequence[LineOutcome]) -> pb.ImportMemoriesResponse:
    """Returns the message of what became of some lines."""
    results = [_result(outcome) for outcome in outcomes]
    stored = sum(result.stored for result in results)
    refused = sum(bool(result.message) for result in results)
    return pb.ImportMemoriesResponse(
        results=results,
        stored_count=stored,
        unchanged_count=len(results) - stored - refused,
        refused_count=refused,
    )


def _result(told: LineOutcome) -> pb.ImportResult:
    outcome = told.outcome
    if isinstance(outcome, LoomError):
        reason = outcome.reason.value
        return pb.ImportResult(line=told.line, key=told.key, reason=reason, message=outcome.message or reason)
    return pb.ImportResult(
        line=told.line, key=told.key, version=outcome.revision, stored=outcome.stored, reason=outcome.reason
    )
