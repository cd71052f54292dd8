"""Between the messages of searches and the domain's own types."""

from datetime import datetime
from typing import Final

from google.protobuf.json_format import MessageToJson

from loom.memory.v1 import memory_pb2 as pb
from loom_common.times import format_optional_time, parse_optional_time
from loom_memory.api.messages import filter_from_proto, memory_to_proto
from loom_memory.app.access import own_filter
from loom_memory.app.search import SearchMode, SearchQuery
from loom_memory.app.search.answering import Answer, Presentation, Render, ShownHit
from loom_memory.app.search.namespaces import NamespaceScope
from loom_memory.domain.excerpts import Bodies
from loom_memory.domain.findings import Explanation
from loom_memory.domain.memory import Filter, to_milliseconds
from loom_memory.domain.narrowing import Narrowing, Span
from loom_memory.domain.recipes import PLANS, Recipe, Weights

_DEFAULT_TOP_K: Final = 10
_FAST: Final = "fast"
_NO_SENSITIVITY: Final = "none"

# What a request says of whom it is for and how its answer looks; the rest is the search, to be asked again.
_NOT_ASKED: Final = (
    "org",
    "namespace",
    "query",
    "user_id",
    "session_id",
    "page",
    "paging",
    "render",
    "bodies",
    "explain",
)


def search_query_from_proto(request: pb.SearchMemoriesRequest) -> SearchQuery:
    """Returns the query of a request, narrowed to what its token may read.

    Raises:
        InvalidArgument: A time cannot be read.
        AuthInsufficient: It names another user or session than the token's own.
    """
    return own_query(query_from_proto(request))


def query_from_proto(request: pb.SearchMemoriesRequest) -> SearchQuery:
    """Returns the query of a request, of whomever it names.

    Raises:
        InvalidArgument: A time cannot be read.
    """
    recipe = Recipe(request.recipe) if request.HasField("recipe") else Recipe.BALANCED
    wanted = filter_from_proto(request)
    return SearchQuery(
        text=request.query,
        wanted=Filter(wanted.user_id, wanted.session_id, wanted.kinds, wanted.tags, wanted.agent, _narrowing(request)),
        top_k=request.top_k if request.HasField("top_k") else _DEFAULT_TOP_K,
        mode=SearchMode(request.search_mode) if request.HasField("search_mode") else SearchMode.HYBRID,
        recipe=recipe,
        weights=weights_from_proto(request.weights, recipe) if request.HasField("weights") else None,
        as_of=time_from_proto(request.as_of, "as_of"),
        asked_at=time_from_proto(request.asked_at, "asked_at"),
        superseded=request.superseded if request.HasField("superseded") else None,
        min_score=request.min_score,
        quality_filter=request.quality_filter,
        hyde=request.hyde if request.HasField("hyde") else None,
        rerank=request.rerank,
        fast=request.retrieval_budget == _FAST,
        facets=request.facets,
        explain=request.explain,
    )


def own_query(query: SearchQuery) -> SearchQuery:
    """Returns the query narrowed to what the running call's token may read."""
    return query.narrowed(own_filter(query.wanted))


def weights_from_proto(message: pb.SearchWeights, recipe: Recipe) -> Weights:
    """Returns a recipe's weights with those that are given in their place."""
    given = {field.name: value for field, value in message.ListFields()}
    return PLANS[recipe].weights.changed(**given)


def presentation_from_proto(request: pb.SearchMemoriesRequest) -> Presentation:
    """Returns how the answer to a request is to look."""
    return Presentation(
        bodies=Bodies(request.bodies) if request.HasField("bodies") else Bodies.FULL,
        render=Render(request.render),
        paging=request.paging,
        page=request.page,
    )


def reach_from_proto(request: pb.SearchMemoriesRequest) -> NamespaceScope:
    """Returns which namespaces a request reads."""
    return NamespaceScope(request.namespace_scope) if request.HasField("namespace_scope") else NamespaceScope.THIS


def asked_again(request: pb.SearchMemoriesRequest) -> str:
    """Returns the request as JSON, without whom it is of and how its answer looked."""
    kept = pb.SearchMemoriesRequest()
    kept.CopyFrom(request)
    for name in _NOT_ASKED:
        kept.ClearField(name)
    return str(MessageToJson(kept, preserving_proto_field_name=True, indent=None))


def response_from_answer(answer: Answer, *, explain: bool) -> pb.SearchMemoriesResponse:
    """Returns the message of an answer."""
    result = answer.result
    return pb.SearchMemoriesResponse(
        hits=[hit_to_proto(hit, explain=explain) for hit in answer.hits],
        candidates_total=result.candidates_total,
        abstain_code=result.abstain_code,
        embedding_pending=result.pending,
        withheld_count=result.withheld,
        facets=[
            pb.SearchFacet(name=facet.name, value=facet.value, matches_count=facet.count) for facet in result.facets
        ],
        rendered=answer.rendered,
        next_page=answer.next_page,
        explanation=explanation_to_proto(result.explanation),
        bodies_returned=answer.bodies_returned,
        bodies_elided=answer.bodies_elided,
        tokens_returned=answer.tokens_returned,
    )


def hit_to_proto(shown: ShownHit, *, explain: bool) -> pb.MemoryHit:
    """Returns the message of a hit, its text as long as it is shown."""
    hit = shown.hit
    message = pb.MemoryHit(memory=memory_to_proto(hit.memory), score=hit.score, similarity=hit.similarity, low=hit.low)
    message.memory.value, message.memory.value_truncated = shown.text, shown.is_cut
    if explain:
        message.components.extend(pb.ScoreComponent(name=name, value=value) for name, value in hit.components.items())
    return message


def time_from_proto(text: str, field: str) -> datetime | None:
    """Returns a point in time as precise as the store keeps it; None for an empty text."""
    moment = parse_optional_time(text, field)
    return None if moment is None else to_milliseconds(moment)


def explanation_to_proto(explanation: Explanation | None) -> pb.SearchExplanation | None:
    """Returns the message of how a search went about its question; None where that was not asked for."""
    if explanation is None:
        return None
    return pb.SearchExplanation(
        recipe=explanation.recipe,
        intent=explanation.intent,
        legs=[pb.LegCount(name=name, memories_count=count) for name, count in explanation.legs.items()],
        times=[
            pb.TimeRange(since_at=format_optional_time(span.since), until_at=format_optional_time(span.until))
            for span in explanation.times
        ],
        wordings=explanation.wordings,
        helpers=[pb.HelperOutcome(name=note.name, outcome=note.outcome) for note in explanation.helpers],
        thresholds=explanation.thresholds,
        noise_floor=explanation.noise_floor,
        unsearched_count=explanation.unsearched,
    )


def _narrowing(request: pb.SearchMemoriesRequest) -> Narrowing:
    return Narrowing(
        speakers=tuple(sorted(set(request.speakers))),
        sources=tuple(sorted(set(request.sources))),
        sensitivities=tuple(sorted({"" if each == _NO_SENSITIVITY else each for each in request.sensitivities})),
        happened=_span(request.happened_since, request.happened_until, "happened"),
        updated=_span(request.updated_since, request.updated_until, "updated"),
        min_importance=request.min_importance if request.HasField("min_importance") else None,
        pinned=request.pinned if request.HasField("pinned") else None,
    )


def _span(since: str, until: str, name: str) -> Span:
    return Span(time_from_proto(since, f"{name}_since"), time_from_proto(until, f"{name}_until"))
