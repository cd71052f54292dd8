"""`loom.memory.v1.ReplayService`."""

from collections.abc import AsyncIterator, Callable
from typing import Final

import grpc.aio
from google.protobuf.json_format import Parse, ParseError

from loom.memory.v1 import memory_pb2
from loom.memory.v1 import replay_pb2 as pb
from loom.memory.v1 import replay_pb2_grpc as pb_grpc
from loom_common.errors import InternalError
from loom_common.times import format_time
from loom_memory.api.search_messages import query_from_proto, time_from_proto, weights_from_proto
from loom_memory.app.search.query import SearchMode, SearchQuery
from loom_memory.app.search.replay import Progress, Replayed, Replaying, ReplayPlan, Way
from loom_memory.domain.rank_changes import Sums
from loom_memory.domain.recipes import Recipe, Weights
from loom_memory.store.search_traces import SearchTrace

_DAYS: Final = 30
_LIMIT: Final = 1_000
_TOP_K: Final = 10
_AS_ASKED: Final = "asked"


class ReplayServicer(pb_grpc.ReplayServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, replaying: Replaying) -> None:
        self._replaying = replaying

    async def Replay(
        self, request: pb.ReplayRequest, context: grpc.aio.ServicerContext[pb.ReplayRequest, pb.ReplayResponse]
    ) -> AsyncIterator[pb.ReplayResponse]:
        """See the contract."""
        plan = ReplayPlan(
            org=request.org,
            namespace=request.namespace,
            days=request.days if request.HasField("days") else _DAYS,
            limit=request.limit if request.HasField("limit") else _LIMIT,
            top_k=request.top_k if request.HasField("top_k") else _TOP_K,
            before=_way(request.before, "before"),
            after=_way(request.after, "after"),
            as_recorded=request.as_recorded,
        )
        async for progress in self._replaying.replay(plan, asked):
            yield _to_proto(progress)


def asked(trace: SearchTrace) -> SearchQuery:
    """Returns a search as it was asked.

    Raises:
        InternalError: It was written by another build, which knew other fields.
    """
    try:
        request = Parse(trace.request, memory_pb2.SearchMemoriesRequest(), ignore_unknown_fields=True)
    except ParseError as error:
        raise InternalError("A search that was kept cannot be read.") from error
    request.query, request.user_id, request.session_id = trace.query, trace.user_id, trace.session_id
    return query_from_proto(request)


def _way(message: pb.ReplayWay, name: str) -> Way:
    as_asked = message.as_of == _AS_ASKED
    return Way(
        recipe=Recipe(message.recipe) if message.recipe else None,
        mode=SearchMode(message.search_mode) if message.search_mode else None,
        as_of=None if as_asked else time_from_proto(message.as_of, f"{name}.as_of"),
        as_asked=as_asked,
        embedder=message.embedder,
        weights=_weights(message.weights) if message.HasField("weights") else None,
    )


def _weights(message: memory_pb2.SearchWeights) -> Callable[[Recipe], Weights]:
    return lambda recipe: weights_from_proto(message, recipe)


def _to_proto(progress: Progress) -> pb.ReplayResponse:
    return pb.ReplayResponse(
        total_count=progress.total,
        done_count=progress.done,
        search=None if progress.replayed is None else _search(progress.replayed),
        summary=None if progress.sums is None else _summary(progress.sums),
    )


def _search(replayed: Replayed) -> pb.ReplayedSearch:
    trace = replayed.trace
    return pb.ReplayedSearch(
        org=trace.scope.org,
        namespace=trace.scope.namespace,
        query=trace.query,
        asked_at=format_time(trace.asked_at),
        overlap=replayed.found.overlap,
        hits=[
            pb.ReplayedHit(
                key=change.identity.key,
                user_id=change.identity.user_id,
                session_id=change.identity.session_id,
                rank_before=change.before,
                rank_after=change.after,
                change=change.kind,
            )
            for change in replayed.found.changes
        ],
        error=replayed.error,
    )


def _summary(sums: Sums) -> pb.ReplaySummary:
    return pb.ReplaySummary(
        compared_count=sums.compared,
        failed_count=sums.failed,
        same_count=sums.same,
        first_changed_count=sums.first_changed,
        moved_count=sums.moved,
        entered_count=sums.entered,
        left_count=sums.left,
        answered_count=sums.answered,
        abstained_count=sums.abstained,
        mean_overlap=sums.mean_overlap,
    )
