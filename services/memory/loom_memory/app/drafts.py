"""What a write asks for, and what of it must be stored."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from loom_common.call import Scope, current
from loom_common.errors import Conflict, InvalidArgument, LoomError, ModelCallsOff, PayloadTooLarge
from loom_memory.app.embedding import Chunk, EmbeddedText, numbered, stub_chunks, with_key
from loom_memory.app.write_versions import DrawnVersions
from loom_memory.domain.analyzer import AnalyzedText
from loom_memory.domain.keys import key_text
from loom_memory.domain.memory import NOTHING_STATED, Content, Identity, Memory, Sensitivity, Stated
from loom_memory.store.embeddings import EmbeddedChunk
from loom_memory.store.versions import Claimed

UNCHANGED: Final = "unchanged"
DUPLICATE: Final = "duplicate"
BLACKLISTED: Final = "blacklisted"
SENSITIVE: Final = "sensitive"

MAX_CALL_BYTES: Final = 512 * 1024
"""Most bytes of text of one call, values together; a single value is never that long.

Source: chosen; more English than this has more tokens than the embedder takes in one call.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What the gates found in a draft's text, and what they did about it.

    Attributes:
        names: What is sensitive in it, sorted.
        sensitivity: The strongest of it.
        recogniser: Version of what looked; empty where nothing did.
        redacted: Whether names took the place of what was found.
        labels: What the namespace's classifier calls it; these are among its tags.
    """

    names: tuple[str, ...] = ()
    sensitivity: Sensitivity = Sensitivity.NONE
    recogniser: str = ""
    redacted: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """One memory to store.

    Attributes:
        identity: Its name.
        content: What it says.
        expected_version: Revision that it must have now, 0 for none; None = any.
        stated: What its writer states beside that.
        has_own_key: Whether its writer gave the key; else it is made of the content.
        verbatim: Whether other memories' words do not matter.
        found: What the gates found in its text.
    """

    identity: Identity
    content: Content
    expected_version: int | None = None
    stated: Stated = NOTHING_STATED
    has_own_key: bool = True
    verbatim: bool = False
    found: Found = Found()


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a draft: the revision that holds its content now, and whether this call made it.

    Attributes:
        identity: Memory that holds it; without a key where nothing does.
        revision: Its revision; 0 where nothing holds it.
        stored: Whether this call made the revision.
        reason: Why it did not.
        updated_at: When the revision was written; None where there is none.
        message: What the reason means, for people.
        duplicate_of: Memory that says the same.
        supersedes: Older memories that hold no longer.
        superseded_by: Newer memory, until whose time this one holds.
        found: What the gates found in the text.
    """

    identity: Identity
    revision: int
    stored: bool
    reason: str
    updated_at: datetime | None
    message: str = ""
    duplicate_of: Identity | None = None
    supersedes: tuple[Identity, ...] = ()
    superseded_by: Identity | None = None
    found: Found = Found()

    @property
    def is_refused(self) -> bool:
        """Whether the namespace does not let it be written."""
        return self.reason in {BLACKLISTED, SENSITIVE}


@dataclass(frozen=True, slots=True)
class Opponent:
    """A memory that a draft contradicts.

    Attributes:
        identity: Its name.
        version: Its version as it was read; 0 where it is stored by the same call.
        cosine: How near the two are.
        is_newer: Whether it is the one that holds.
        ends_at: When the older of the two ceases to hold.
        restore_to: Until when the older one held before; None for ever.
    """

    identity: Identity
    version: int
    cosine: float
    is_newer: bool
    ends_at: datetime
    restore_to: datetime | None


@dataclass(frozen=True, slots=True)
class Change:
    """A draft that must be stored, on top of the row that was read.

    Attributes:
        place: Place of the draft in its call.
        draft: What is stored.
        base: Row that was read.
        chunks: Vectors of its text.
        text: Words of its text.
        opponents: What it contradicts.
        like: Row whose facts beside the content it keeps, where no writer gives them anew.
    """

    place: int
    draft: Draft
    base: Memory | None
    chunks: list[Chunk]
    text: AnalyzedText
    opponents: tuple[Opponent, ...] = ()
    like: Memory | None = None


@dataclass(slots=True)
class Prepared:
    """What the texts of a call were made into: vectors of values and of keys, and the words of values."""

    embedded: dict[str, EmbeddedText] = field(default_factory=dict)
    analysed: dict[str, AnalyzedText] = field(default_factory=dict)

    def chunks(self, draft: Draft) -> EmbeddedText:
        """Returns the chunks of a draft; a stub where its organisation has calls to models switched off."""
        value, said = draft.content.value, key_text(draft.identity.key)
        found = self.embedded[value]
        if said:
            found = with_key(found, self.embedded[said])
        return stub_chunks(value) if isinstance(found, ModelCallsOff) else found


Outcome = Written | LoomError


def require_bounded(drafts: Sequence[Draft]) -> None:
    """Raises InvalidArgument where drafts hold more text than one call may, before anything is done for them."""
    size = sum(len(draft.content.value.encode()) for draft in drafts)
    if size > MAX_CALL_BYTES:
        raise InvalidArgument.of(
            "items",
            f"{size:,} bytes of text, and one call takes {MAX_CALL_BYTES:,}; send it in "
            f"{math.ceil(size / MAX_CALL_BYTES)} calls or more",
            max_bytes=MAX_CALL_BYTES,
        )


def too_much_text(error: PayloadTooLarge) -> InvalidArgument:
    """Returns what a writer is told of texts that the embedder does not take together."""
    tokens, most = error.detail.get("tokens"), error.detail.get("max_tokens")
    if not isinstance(tokens, int | float) or not isinstance(most, int | float):
        return InvalidArgument.of("items", "more text than one call takes; send it in several calls")
    return InvalidArgument.of(
        "items",
        f"{tokens:,.0f} tokens of text, and one call takes {most:,.0f}; send it in {math.ceil(tokens / most)} calls or "
        "more",
        max_tokens=most,
    )


def expect(base: Memory | None, expected_version: int | None, now: datetime) -> None:
    """Raises Conflict where the memory has another version than the one that a write expects."""
    held = base.revision if base is not None and base.is_visible(now) else 0
    if expected_version is not None and expected_version != held:
        raise Conflict(
            f"The memory has version {held}, not {expected_version}; read it again and decide.",
            detail={"expected_version": expected_version, "version": held},
        )


def decide(draft: Draft, base: Memory | None, now: datetime) -> Outcome | None:
    """Returns the outcome of a draft that needs no write, else None."""
    if not draft.content.value.strip():
        return InvalidArgument.of("value", "must hold text")
    stated = draft.stated
    if stated.valid_at is not None and stated.invalid_at is not None and stated.invalid_at < stated.valid_at:
        return InvalidArgument.of("invalid_at", "lies before `valid_at`")
    expires_at = draft.content.expires_at
    if expires_at is not None and expires_at <= now:
        return InvalidArgument.of("expires_at", "must lie in the future; a memory that has expired is never shown")
    try:
        expect(base, draft.expected_version, now)
    except Conflict as error:
        return error
    if base is not None and base.is_visible(now) and _says(base, draft):
        return Written(
            base.identity, base.revision, False, UNCHANGED, base.updated_at,
            message="The memory holds this content already.", found=draft.found,
        )  # fmt: skip
    return None


def _says(base: Memory, draft: Draft) -> bool:
    """Says whether a row holds what a draft says; what a classifier added to either is nobody's word.

    A newer memory may have ended the row's time. The same event told again is then a repetition; the same words without
    a time say that it holds again.
    """
    stated = base.stated
    if draft.content.event_time is not None and draft.stated.valid_at is None and draft.stated.invalid_at is None:
        stated = replace(stated, valid_at=None, invalid_at=None)
    if stated != draft.stated:
        return False
    return _unlabelled(base.content, base.labels) == _unlabelled(draft.content, draft.found.labels)


def _unlabelled(content: Content, labels: tuple[str, ...]) -> Content:
    if not labels:
        return content
    return replace(content, tags=tuple(tag for tag in content.tags if tag not in labels))


def changes_of(
    drafts: Mapping[int, Draft],
    current: dict[Identity, Memory],
    prepared: Prepared,
    outcomes: dict[int, Outcome],
) -> Iterator[Change]:
    """Yields the drafts whose text could be prepared; the others get their error as outcome."""
    for place, draft in drafts.items():
        found = prepared.chunks(draft)
        if isinstance(found, LoomError):
            outcomes[place] = found
        else:
            yield Change(place, draft, current.get(draft.identity), found, prepared.analysed[draft.content.value])


def next_version(
    scope: Scope,
    change: Change,
    actor: str,
    numbers: DrawnVersions,
    now: datetime,
    floors: dict[Identity, Claimed],
) -> Memory:
    """Returns the row that a change stores."""
    base, draft = change.base, change.draft
    floor = floors.get(draft.identity, Claimed(0, 0))
    stated, found = draft.stated, draft.found
    row = Memory(
        scope=scope,
        identity=draft.identity,
        content=draft.content,
        actor=actor,
        revision=max(base.revision if base else 0, floor.revision) + 1,
        version=numbers.next(after=max(base.version if base else 0, floor.version)),
        # What was deleted or has expired is another memory's life.
        created_at=base.created_at if base and base.is_visible(now) else now,
        updated_at=now,
        sensitivity=max(Sensitivity(stated.sensitivity), found.sensitivity, key=lambda each: each.weight).value,
        valid_at=stated.valid_at,
        invalid_at=stated.invalid_at,
        attestation=stated.attestation,
        sensitivity_stated=stated.sensitivity,
        sensitivity_found=found.names,
        recogniser=found.recogniser,
        labels=found.labels,
        derived_from=stated.derived_from,
        request_id=current().request_id,
    )
    like = change.like
    if like is None:
        return row
    return replace(
        row, actor=like.actor, sensitivity=like.sensitivity, sensitivity_found=like.sensitivity_found,
        recogniser=like.recogniser, labels=like.labels, request_id=like.request_id,
    )  # fmt: skip


def embedded_chunks(change: Change, memory: Memory) -> Iterator[EmbeddedChunk]:
    """Yields the rows of a change's vectors."""
    for number, chunk in numbered(change.chunks):
        yield EmbeddedChunk(
            scope=memory.scope,
            identity=memory.identity,
            version=memory.version,
            chunk=number,
            start_offset=chunk.start_offset,
            end_offset=chunk.end_offset,
            vector=chunk.vector,
            invalid_at=memory.invalid_at,
            attestation=memory.attestation,
        )
