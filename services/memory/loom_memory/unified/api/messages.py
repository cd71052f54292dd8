"""Between the messages of searches over everything and what the use case asks and answers."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from loom.memory.v1 import knowledge_pb2, search_pb2
from loom.memory.v1 import memory_pb2 as pb
from loom_common.call import Scope
from loom_common.times import format_time
from loom_memory.api.search_messages import asked_again, explanation_to_proto, hit_to_proto
from loom_memory.app.access import own_filter
from loom_memory.app.search import SearchQuery
from loom_memory.app.search.answering import Presentation, Render
from loom_memory.app.search.namespaces import NamespaceScope
from loom_memory.domain.excerpts import Bodies
from loom_memory.domain.memory import Filter
from loom_memory.domain.recipes import Recipe
from loom_memory.knowledge.api.messages import hit_to_proto as passage_to_proto
from loom_memory.unified.app.found import (
    Asked,
    ConversationsSide,
    Found,
    KnowledgeSide,
    MemorySide,
    ProfileSide,
    ShownPassage,
    ShownTurn,
    TrackerSide,
)
from loom_memory.unified.app.ports import SectionMatch, Verdict
from loom_memory.unified.domain.withholding import Rule

_TOP_K: Final = 5


def asked_from_proto(request: search_pb2.SearchRequest, scope: Scope, *, is_named: bool, code_scope: str) -> Asked:
    """Returns what a request asks, narrowed to what its token may read: always readable, always with pages.

    Args:
        request: The request.
        scope: Namespace that the call was authorized for.
        is_named: Whether the caller named it.
        code_scope: Checkout that the caller works in; empty for none.

    Raises:
        AuthInsufficient: The token names no user whose rows are its own, and reads only those.
    """
    return Asked(
        scope=scope,
        is_named=is_named,
        query=query_from_proto(request),
        reach=NamespaceScope(request.namespace_scope)
        if request.HasField("namespace_scope")
        else NamespaceScope.ALL_MINE,
        look=Presentation(
            bodies=Bodies(request.bodies) if request.HasField("bodies") else Bodies.EXCERPT,
            render=Render.READER,
            paging=True,
            page=request.page,
        ),
        code_scope=code_scope,
        request=lambda: memories_asked(request),
    )


def query_from_proto(request: search_pb2.SearchRequest) -> SearchQuery:
    """Returns what a request asks of memories, narrowed to what its token may read."""
    return SearchQuery(
        text=request.query,
        wanted=own_filter(Filter(tags=tuple(sorted(set(request.tags))))),
        top_k=request.top_k if request.HasField("top_k") else _TOP_K,
        recipe=Recipe(request.recipe) if request.HasField("recipe") else Recipe.BALANCED,
        quality_filter=not request.explain,
        explain=request.explain,
    )


def memories_asked(request: search_pb2.SearchRequest) -> str:
    """Returns what a request asks of memories, as JSON."""
    asked = pb.SearchMemoriesRequest(tags=request.tags, top_k=request.top_k or _TOP_K)
    if request.HasField("recipe"):
        asked.recipe = request.recipe
    return asked_again(asked)


def response_from_found(found: Found, *, explain: bool) -> search_pb2.SearchResponse:
    """Returns the message of an answer."""
    return search_pb2.SearchResponse(
        memory=_memory(found.memory, explain=explain),
        knowledge=_knowledge(found.knowledge, explain=explain) if found.knowledge else None,
        profile=_profile(found.profile) if found.profile else None,
        conversations=_conversations(found.conversations) if found.conversations else None,
        tracker=_tracker(found.tracker) if found.tracker else None,
        withheld=_withheld(found.withheld),
        repository_error=found.repository_error,
    )


def _memory(side: MemorySide, *, explain: bool) -> search_pb2.MemorySection:
    answer, result = side.answer, side.answer.result
    hits = [hit_to_proto(hit, explain=explain) for hit in side.hits]
    for hit, why in zip(hits, side.whys, strict=False):
        hit.why = why
    return search_pb2.MemorySection(
        hits=hits,
        candidates_total=result.candidates_total,
        abstain_code=result.abstain_code,
        error=side.error,
        embedding_pending=result.pending,
        rendered=side.rendered,
        next_page=answer.next_page,
        withheld_count=result.withheld,
        explanation=explanation_to_proto(result.explanation),
        bodies_returned=answer.bodies_returned,
        bodies_elided=answer.bodies_elided,
        tokens_returned=answer.tokens_returned,
    )


def _knowledge(side: KnowledgeSide, *, explain: bool) -> search_pb2.KnowledgeMatches:
    return search_pb2.KnowledgeMatches(
        hits=[_passage(hit, explain=explain) for hit in side.hits],
        abstain_code=side.abstain_code,
        error=side.error,
        embedding_pending=side.pending,
        rendered=side.rendered,
    )


def _passage(shown: ShownPassage, *, explain: bool) -> knowledge_pb2.KnowledgeHit:
    message = passage_to_proto(shown.hit, explain=explain)
    message.text = shown.text
    return message


def _profile(side: ProfileSide) -> search_pb2.ProfileMatches:
    hits = [_section(match) for match in side.hits]
    return search_pb2.ProfileMatches(hits=hits, error=side.error, rendered=side.rendered)


def _section(match: SectionMatch) -> search_pb2.ProfileMatch:
    return search_pb2.ProfileMatch(
        namespace=match.scope.namespace,
        label=match.label,
        value=match.value,
        user_id=match.user_id,
        agent=match.agent,
        updated_at=_time(match.updated_at),
        version=match.version,
        similarity=match.similarity,
        by_words=match.by_words,
    )


def _conversations(side: ConversationsSide) -> search_pb2.ConversationMatches:
    return search_pb2.ConversationMatches(
        hits=[_turn(hit) for hit in side.hits],
        abstain_code=side.abstain_code,
        error=side.error,
        embedding_pending=side.pending,
        rendered=side.rendered,
    )


def _turn(shown: ShownTurn) -> search_pb2.TurnMatch:
    match = shown.match
    return search_pb2.TurnMatch(
        namespace=match.scope.namespace,
        conversation_id=match.conversation_id,
        title=match.title,
        turn_id=match.turn_id,
        turn_index=match.turn_index,
        author=match.author,
        role=match.role,
        text=shown.text,
        text_truncated=shown.is_cut,
        said_at=_time(match.at),
        score=match.score,
        similarity=match.similarity,
    )


def _tracker(side: TrackerSide) -> search_pb2.TrackerVerdict:
    known = side.verdict or Verdict("")
    return search_pb2.TrackerVerdict(
        verdict=known.verdict,
        reference=known.reference,
        title=known.title,
        url=known.url,
        status=known.status,
        error=side.error,
        rendered=side.rendered,
    )


def _withheld(counts: Counter[Rule]) -> search_pb2.WithheldCounts | None:
    taken: Mapping[str, int] = {rule.value: count for rule, count in counts.items() if count}
    return search_pb2.WithheldCounts(**taken) if taken else None


def _time(moment: datetime | None) -> str:
    return format_time(moment) if moment is not None else ""
