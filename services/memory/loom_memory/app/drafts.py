"""What a write asks for, and what of it must be stored."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.errors import Conflict, InvalidArgument, LoomError, ModelCallsOff, PayloadTooLarge
from loom_memory.app.embedding import Chunk, EmbeddedText, numbered, stub_chunks, with_key
from loom_memory.app.write_versions import DrawnVersions
from loom_memory.domain.analyzer import AnalyzedText
from loom_memory.domain.keys import key_text
from loom_memory.domain.memory import Content, Identity, Memory
from loom_memory.store.embeddings import EmbeddedChunk
from loom_memory.store.versions import Claimed

UNCHANGED: Final = "unchanged"

MAX_CALL_BYTES: Final = 512 * 1024
"""Most bytes of text of one call, values together; a single value is never that long.

Source: chosen; more English than this has more tokens than the embedder takes in one call.
"""


@dataclass(frozen=True, slots=True)
class Draft:
    """One memory to store. `expected_version` is the revision that it must have now, 0 for none; None = any."""

    identity: Identity
    content: Content
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a draft: the revision that holds its content now, and whether this call made it."""

    identity: Identity
    revision: int
    stored: bool
    reason: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """A draft that must be stored, on top of the row that was read."""

    place: int
    draft: Draft
    base: Memory | None
    chunks: list[Chunk]
    text: AnalyzedText


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
    expires_at = draft.content.expires_at
    if expires_at is not None and expires_at <= now:
        return InvalidArgument.of("expires_at", "must lie in the future; a memory that has expired is never shown")
    try:
        expect(base, draft.expected_version, now)
    except Conflict as error:
        return error
    if base is not None and base.is_visible(now) and base.content == draft.content:
        return Written(base.identity, base.revision, False, UNCHANGED, base.updated_at)
    return None


def changes_of(
    drafts: dict[int, Draft],
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
    base, identity = change.base, change.draft.identity
    floor = floors.get(identity, Claimed(0, 0))
    return Memory(
        scope=scope,
        identity=identity,
        content=change.draft.content,
        actor=actor,
        revision=max(base.revision if base else 0, floor.revision) + 1,
        version=numbers.next(after=max(base.version if base else 0, floor.version)),
        # What was deleted or has expired is another memory's life.
        created_at=base.created_at if base and base.is_visible(now) else now,
        updated_at=now,
    )


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
        )
