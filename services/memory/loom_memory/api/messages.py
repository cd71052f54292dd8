"""Between messages and the domain's own types."""

from collections.abc import Iterable
from datetime import datetime

from loom.memory.v1 import memory_pb2 as pb
from loom_common.call import Scope
from loom_common.errors import LoomError
from loom_common.interceptors.validation import check_message
from loom_common.times import format_optional_time, format_time, parse_optional_time
from loom_memory.app.access import own_identity
from loom_memory.app.drafts import Draft, Outcome, Written
from loom_memory.domain.memory import (
    DEFAULT_IMPORTANCE,
    DEFAULT_KIND,
    Content,
    Filter,
    Hit,
    Identity,
    Memory,
    Stated,
    content_key,
    to_milliseconds,
)


def identity_from_proto(
    request: pb.GetMemoryRequest
    | pb.DeleteMemoryRequest
    | pb.ListMemoryVersionsRequest
    | pb.RestoreMemoryRequest
    | pb.InspectMemoryRequest
    | pb.GetMemoryProvenanceRequest
    | pb.GiveMemoryFeedbackRequest,
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


def draft_from_proto(item: pb.SetMemoryRequest | pb.MemoryInput, *, verbatim: bool = False) -> Draft:
    """Returns the draft of a memory; a key is made where none is given.

    Args:
        item: The memory.
        verbatim: Whether its whole call is stored as it is.

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
    stated = Stated(
        valid_at=_time(item.valid_at, "valid_at"),
        invalid_at=_time(item.invalid_at, "invalid_at"),
        attestation=item.attestation,
        sensitivity=item.sensitivity,
        derived_from=tuple(dict.fromkeys(item.derived_from)),
    )
    key = item.key or content_key(content, stated)
    return Draft(
        identity=own_identity(Identity(key, item.user_id, item.session_id)),
        content=content,
        expected_version=item.expected_version if item.HasField("expected_version") else None,
        stated=stated,
        has_own_key=bool(item.key),
        verbatim=verbatim or item.verbatim,
    )


def drafts_from_proto(items: Iterable[pb.MemoryInput], *, verbatim: bool = False) -> list[Draft | LoomError]:
    """Returns the draft of each item, or why it is refused."""
    return [_checked_draft(item, verbatim=verbatim) for item in items]


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
        valid_at=format_optional_time(memory.valid_at),
        invalid_at=format_optional_time(memory.invalid_at),
        attestation=memory.attestation,
        sensitivity=memory.sensitivity,
        sensitivity_found=memory.sensitivity_found,
        labels=memory.labels,
    )


def version_to_proto(memory: Memory, superseded_at: datetime | None) -> pb.Memory:
    """Returns the message of a version in a history."""
    message = memory_to_proto(memory)
    message.superseded_at = format_optional_time(superseded_at)
    return message


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
        updated_at=format_optional_time(written.updated_at),
        message=written.message,
        duplicate_of=_key(written.duplicate_of),
        supersedes=[identity.key for identity in written.supersedes],
        superseded_by=_key(written.superseded_by),
        sensitivity_found=written.found.names,
        redacted=written.found.redacted,
    )


def result_to_proto(key: str, outcome: Outcome) -> pb.SetManyResult:
    """Returns the message of what became of one item."""
    if isinstance(outcome, LoomError):
        return pb.SetManyResult(key=key, reason=outcome.reason.value, message=outcome.message or outcome.reason.value)
    return pb.SetManyResult(
        key=outcome.identity.key,
        version=outcome.revision,
        stored=outcome.stored,
        reason=outcome.reason,
        message=outcome.message,
        duplicate_of=_key(outcome.duplicate_of),
        supersedes=[identity.key for identity in outcome.supersedes],
        superseded_by=_key(outcome.superseded_by),
        sensitivity_found=outcome.found.names,
        redacted=outcome.found.redacted,
    )


def _key(identity: Identity | None) -> str:
    return "" if identity is None else identity.key


def _checked_draft(item: pb.MemoryInput, *, verbatim: bool) -> Draft | LoomError:
    try:
        check_message(item)
        return draft_from_proto(item, verbatim=verbatim)
    except LoomError as error:
        return error


def _time(text: str, field: str) -> datetime | None:
    """Returns the point in time as the store keeps it, so that the same text is always the same content."""
    moment = parse_optional_time(text, field)
    return None if moment is None else to_milliseconds(moment)
