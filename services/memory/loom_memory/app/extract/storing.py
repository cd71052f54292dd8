"""Stores what came of a conversation: facts, or the messages as they are, through the writer and its gates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from loom_common.call import Scope
from loom_common.errors import LoomError, ProviderFailed
from loom_common.model_calls.held import HOLDS
from loom_memory.app.drafts import Draft, Outcome, Written
from loom_memory.domain.conversation import Message, message_keys
from loom_memory.domain.extractions import Counts
from loom_memory.domain.facts import Fact, fact_content, fact_key
from loom_memory.domain.memory import Content, Identity

# One call's share, well under what the writer takes at once; a large one would hold its locks for long.
_CALL_BYTES: Final = 256 * 1024
_CALL_ITEMS: Final = 100

MESSAGE: Final = "message"
"""Kind of a message that is stored as it is."""


class Writer(Protocol):
    """Stores memories, behind its gates."""

    async def set_many(self, scope: Scope, drafts: Sequence[Draft], actor: str) -> list[Outcome]:
        """See `MemoryWriter.set_many`."""
        ...


@dataclass(frozen=True, slots=True)
class Filing:
    """Where the memories of a conversation go, and whose they are.

    Attributes:
        actor: Who gave the conversation.
    """

    scope: Scope
    actor: str
    user_id: str = ""
    session_id: str = ""
    agent: str = ""
    tags: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """What became of one fact or message."""

    key: str
    value: str
    kind: str
    message: int
    version: int = 0
    stored: bool = False
    reason: str = ""
    told: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether nothing holds it now."""
        return not self.version and bool(self.reason)


def count(items: Sequence[StoredItem], extracted: int) -> Counts:
    """Returns the counts of what became of items."""
    refused = sum(item.is_refused for item in items)
    stored = sum(item.stored for item in items)
    return Counts(extracted, stored, len(items) - refused - stored, refused)


class ConversationStore:
    """Stores facts and messages of a conversation; the same again adds nothing."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def facts(self, filing: Filing, messages: Sequence[Message], facts: Sequence[Fact]) -> list[StoredItem]:
        """Stores facts, each with the message that says it as its source.

        Raises:
            LoomError: The store or the embedder is away; what is stored stays, and comes out unchanged the next time.
        """
        keys = message_keys(messages)
        drafts = []
        for fact in facts:
            source = f"{filing.source} " if filing.source else ""
            content = fact_content(
                fact,
                source=f"{source}message:{messages[fact.message].id or keys[fact.message]}",
                agent=filing.agent,
                tags=filing.tags,
            )
            identity = Identity(fact_key(fact), filing.user_id, filing.session_id)
            # No key of its own: one that is known in other words is found to be known, and a changed one to be newer.
            drafts.append(Draft(identity, content, has_own_key=False))
        return await self._store(filing, drafts, [fact.message for fact in facts])

    async def verbatim(self, filing: Filing, messages: Sequence[Message]) -> list[StoredItem]:
        """Stores each message as it is.

        Raises:
            LoomError: As for `facts`.
        """
        drafts = [
            Draft(
                Identity(key, filing.user_id, filing.session_id),
                Content(
                    value=message.content,
                    tags=filing.tags,
                    agent=filing.agent,
                    kind=MESSAGE,
                    speaker=message.who,
                    source=" ".join(part for part in (filing.source, message.id and f"message:{message.id}") if part),
                    event_time=message.said_at,
                ),
                has_own_key=False,
                verbatim=True,
            )
            for key, message in zip(message_keys(messages), messages, strict=True)
        ]
        return await self._store(filing, drafts, list(range(len(messages))))

    async def _store(self, filing: Filing, drafts: Sequence[Draft], places: Sequence[int]) -> list[StoredItem]:
        items: list[StoredItem] = []
        first = 0
        for last in _ends(drafts):
            part = drafts[first:last]
            outcomes = await self._writer.set_many(filing.scope, part, filing.actor)
            for draft, place, outcome in zip(part, places[first:last], outcomes, strict=True):
                items.append(_item(draft, place, outcome))
            first = last
        return items


def _ends(drafts: Sequence[Draft]) -> list[int]:
    """Returns where each call's share ends."""
    ends: list[int] = []
    size = begun = 0
    for place, draft in enumerate(drafts):
        length = len(draft.content.value.encode("utf-8", "surrogatepass"))
        if place > begun and (size + length > _CALL_BYTES or place - begun == _CALL_ITEMS):
            ends.append(place)
            size, begun = 0, place
        size += length
    return [*ends, len(drafts)] if drafts else []


def _item(draft: Draft, place: int, outcome: Outcome) -> StoredItem:
    content = draft.content
    if isinstance(outcome, Written):
        return StoredItem(
            outcome.identity.key,
            content.value,
            content.kind,
            place,
            outcome.revision,
            outcome.stored,
            outcome.reason,
            outcome.message,
        )
    # What passes with time is the whole call's: sent again, it finds what is stored.
    if outcome.row.resend or isinstance(outcome, (*HOLDS, ProviderFailed)):
        raise outcome
    return StoredItem(
        draft.identity.key, content.value, content.kind, place, reason=outcome.reason.value, told=_told(outcome)
    )


def _told(error: LoomError) -> str:
    fields = "; ".join(f"{field.field} {field.description}" for field in error.fields)
    return fields or error.message or error.reason.value
