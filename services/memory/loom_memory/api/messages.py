"""Between messages and the domain's own types."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from loom.memory.v1 import memory_pb2 as pb
from loom_common.call import Scope
from loom_common.errors import LoomError
from loom_common.interceptors.validation import check_message
from loom_common.times import format_optional_time, format_time, parse_optional_time
from loom_memory.app.access import own_filter, own_identity
from loom_memory.app.drafts import Draft, Outcome, Written
from loom_memory.app.search import SearchMode, SearchQuery
from loom_memory.domain.memory import (
    DEFAULT_IMPORTANCE,
    DEFAULT_KIND,
    Content,
    Filter,
    Hit,
    Identity,
    Memory,
    content_key,
    to_milliseconds,
)

_DEFAULT_TOP_K: Final = 10


def identity_from_proto(
    request: pb.GetMemoryRequest | pb.DeleteMemoryRequest | pb.ListMemoryVersionsRequest,
) -> Identity:
    """Returns the identity that a request addresses."""
    return Identity(request.key, request.user_id, request.session_id)


def filter_from_proto(request: pb.ListMemoriesRequest | pb.SearchMemoriesRequest) -> Filter:
    """Returns the filter of a request; order and repetitions in its lists do not matter."""
    return Filter(
        user_id=request.user_id or None,
        session_id=request.session_id or None,
        kinds=tuple(sorted(set(request.kinds))),
        tags=tuple(sorted(set(request.tags))),
        agent=request.agent,
    )


def search_query_from_proto(request: pb.SearchMemoriesRequest) -> SearchQuery:
    """Returns the query of a request, narrowed to what its token may read."""
    return SearchQuery(
        text=request.query,
        wanted=own_filter(filter_from_proto(request)),
        top_k=request.top_k if request.HasField("top_k") else _DEFAULT_TOP_K,
        mode=SearchMode(request.search_mode) if request.HasField("search_mode") else SearchMode.HYBRID,
    )


def draft_from_proto(item: pb.SetMemoryRequest | pb.MemoryInput) -> Draft:
    """Returns the draft of a memory; a key is made where none is given.

    Raises:
        InvalidArgument: A time cannot be read.
        AuthInsufficient: It is filed under another user or session than the token's own.
    """
    content = Content(
        value=item.value,
        kind=item.kind if item.HasField("kind") else DEFAULT_KIND,
        tags=tuple(item.tags),
        importance=item.importance if item.HasField("importance") else DEFAULT_IMPORTANCE,
        agent=item.agent,
        speaker=item.speaker,
        source=item.source,
        event_time=_time(item.event_time, "event_time"),
        expires_at=_time(item.expires_at, "expires_at"),
        pinned=item.pinned,
    )
    return Draft(
        identity=own_identity(Identity(item.key or content_key(content), item.user_id, item.session_id)),
        content=content,
        expected_version=item.expected_version if item.HasField("expected_version") else None,
    )


def drafts_from_proto(items: Iterable[pb.MemoryInput]) -> list[Draft | LoomError]:
    """Returns the draft of each item, or why it is refused."""
    return [_checked_draft(item) for item in items]


def memory_to_proto(memory: Memory) -> pb.Memory:
    """Returns the message of a memory, its value whole."""
    content = memory.content
    return pb.Memory(
        namespace=memory.scope.namespace,
        key=memory.identity.key,
        user_id=memory.identity.user_id,
        session_id=memory.identity.session_id,
        value=content.value,
        kind=content.kind,
        tags=content.tags,
        importance=content.importance,
        agent=content.agent,
        actor=memory.actor,
        speaker=content.speaker,
        source=content.source,
        version=memory.revision,
        created_at=format_time(memory.created_at),
        updated_at=format_time(memory.updated_at),
        event_time=format_optional_time(content.event_time),
        expires_at=format_optional_time(content.expires_at),
        pinned=content.pinned,
    )


def hit_to_proto(hit: Hit) -> pb.MemoryHit:
    """Returns the message of a hit."""
    return pb.MemoryHit(memory=memory_to_proto(hit.memory), score=hit.score, similarity=hit.similarity, low=hit.low)


def written_to_proto(scope: Scope, written: Written) -> pb.SetMemoryResponse:
    """Returns the message of a write."""
    return pb.SetMemoryResponse(
        key=written.identity.key,
        version=written.revision,
        stored=written.stored,
        reason=written.reason,
        namespace=scope.namespace,
        updated_at=format_time(written.updated_at),
    )


def result_to_proto(key: str, outcome: Outcome) -> pb.SetManyResult:
    """Returns the message of what became of one item."""
    if isinstance(outcome, LoomError):
        return pb.SetManyResult(key=key, reason=outcome.reason.value, message=outcome.message or outcome.reason.value)
    return pb.SetManyResult(key=key, version=outcome.revision, stored=outcome.stored, reason=outcome.reason)


def _checked_draft(item: pb.MemoryInput) -> Draft | LoomError:
    try:
        check_message(item)
        return draft_from_proto(item)
    except LoomError as error:
        return error


def _time(text: str, field: str) -> datetime | None:
    """Returns the point in time as the store keeps it, so that the same text is always the same content."""
    moment = parse_optional_time(text, field)
    return None if moment is None else to_milliseconds(moment)
