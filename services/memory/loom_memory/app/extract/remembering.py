"""Remembers conversations: at once, or in the background."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import DeadlineExceeded, InvalidArgument, LoomError
from loom_memory.app.extract.storing import ConversationStore, Filing, StoredItem, count
from loom_memory.app.extract.working import ExtractionWork
from loom_memory.domain.conversation import Message, messages_to_json, request_id
from loom_memory.domain.extractions import MESSAGES, Counts, Extraction, Reason, State
from loom_memory.store.extractions import ExtractionRepository

MAX_BYTES: Final = 512 * 1024
"""Most bytes of text of one conversation."""

# A request that is not over by then is not worked on by its process any more.
_LEASE_MARGIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is to be remembered, and how."""

    filing: Filing
    messages: Sequence[Message]
    capture: str = "conversation"
    verbatim: bool = False
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class Remembered:
    """What became of a conversation."""

    counts: Counts
    items: tuple[StoredItem, ...] = ()
    extraction_id: str = ""
    state: str = State.DONE.value
    reason: str = ""
    message: str = ""
    model: str = ""


class Remembering:
    """Takes conversations. The same one again is the same extraction, and adds nothing.

    Args:
        extractions: The queue; an extraction at once is a row of it too, so that one that is killed is gone on with.
        work: Does the work.
        store: Stores messages as they are.
        clock: Time.
        deadline_s: Longest time of an extraction at once.
        queued: Hears of each that waits for the background.
    """

    def __init__(
        self,
        extractions: ExtractionRepository,
        work: ExtractionWork,
        store: ConversationStore,
        clock: Clock,
        *,
        deadline_s: float,
        queued: Callable[[], None],
    ) -> None:
        self._extractions = extractions
        self._work = work
        self._store = store
        self._clock = clock
        self._deadline_s = deadline_s
        self._queued = queued

    async def remember(self, conversation: Conversation) -> Remembered:
        """Remembers a conversation, or takes it for later.

        Raises:
            InvalidArgument: It holds nothing, or more than one call takes.
            LoomError: The model, the store or the embedder did not do its part; what is stored stays.
        """
        _require_bounded(conversation.messages)
        if conversation.verbatim:
            return await self._verbatim(conversation)
        row = self._row(conversation)
        before = await self._extractions.get(row.scope, row.id)
        if before is not None and _counts_as_done(before):
            return _again(before)
        if before is not None and before.is_worked_on(self._clock.now()):
            return _waiting(before)
        if conversation.deferred:
            return await self._defer(row, before)
        is_queued = before is not None and before.state in (State.PENDING, State.RUNNING)
        return await self._at_once(_following(row, before), is_queued=is_queued)

    async def find(self, scope: Scope, extraction_id: str) -> Extraction | None:
        """Returns an extraction as it is now, or None where it is not known."""
        return await self._extractions.get(scope, extraction_id)

    async def _verbatim(self, conversation: Conversation) -> Remembered:
        items = await self._store.verbatim(conversation.filing, conversation.messages)
        counts = count(items, 0)
        reason = None
        if not counts.stored:
            reason = Reason.UNCHANGED if counts.unchanged else Reason.REFUSED
        return Remembered(
            counts,
            tuple(items),
            reason="" if reason is None else reason.value,
            message="" if reason is None else MESSAGES[reason],
        )

    async def _defer(self, row: Extraction, before: Extraction | None) -> Remembered:
        if before is None or before.state in (State.FAILED, State.DONE, State.DEAD):
            before = await self._work.put(_following(row, before))
        self._queued()
        return _waiting(before)

    async def _at_once(self, row: Extraction, *, is_queued: bool) -> Remembered:
        lease_s = self._deadline_s + _LEASE_MARGIN_S
        row = await self._work.put(row.leased(self._clock.now(), lease_s))
        try:
            async with asyncio.timeout(self._deadline_s):
                worked = await self._work.work(row)
        except TimeoutError:
            error = DeadlineExceeded(
                f"The facts were not extracted within {self._deadline_s:g} s; what was found by then is stored. "
                "Send it again, or with deferred.",
                detail={"deadline_s": self._deadline_s},
            )
            await self._told(row, error, is_queued=is_queued)
            raise error from None
        except LoomError as error:
            await self._told(row, error, is_queued=is_queued)
            raise
        if not worked.is_whole:
            told = worked.row.told(worked.row.reason, worked.row.message, self._clock.now())
            return _remembered(await self._work.note(row, lambda _: told) or told, worked.items)
        return _remembered(await self._work.note(row, lambda _: worked.row) or worked.row, worked.items)

    async def _told(self, row: Extraction, error: LoomError, *, is_queued: bool) -> None:
        """Notes that the caller knows of an error; what was taken for later before stays in the queue.

        Where that cannot be noted, the background goes on with the row.
        """
        now, reason = self._clock.now(), error.reason.value

        def noted(current: Extraction) -> Extraction:
            if is_queued:
                return current.failed(reason, error.message, now, retry_after_s=error.retry_after_s)
            return current.told(reason, error.message, now)

        await self._work.note(row, noted)

    def _row(self, conversation: Conversation) -> Extraction:
        filing, now = conversation.filing, self._clock.now()
        told = {
            "user_id": filing.user_id,
            "session_id": filing.session_id,
            "agent": filing.agent,
            "capture": conversation.capture,
            "tags": list(filing.tags),
            "source": filing.source,
        }
        return Extraction(
            scope=filing.scope,
            id=request_id(told, conversation.messages),
            enqueued_by=filing.actor,
            payload=json.dumps(messages_to_json(conversation.messages)),
            created_at=now,
            updated_at=now,
            due_at=now,
            user_id=filing.user_id,
            session_id=filing.session_id,
            agent=filing.agent,
            capture=conversation.capture,
            tags=filing.tags,
            source=filing.source,
        )


def _require_bounded(messages: Sequence[Message]) -> None:
    if not any(message.content.strip() for message in messages):
        raise InvalidArgument.of("messages", "must hold text")
    size = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in messages)
    if size > MAX_BYTES:
        raise InvalidArgument.of(
            "messages",
            f"{size:,} bytes of text, and one call takes {MAX_BYTES:,}; send it in parts",
            max_bytes=MAX_BYTES,
        )


def _counts_as_done(row: Extraction) -> bool:
    """Says whether the same messages again have nothing to add; without a model they wait for one."""
    return row.state is State.DONE and row.reason != Reason.NO_MODEL.value


def _following(row: Extraction, before: Extraction | None) -> Extraction:
    """Returns the row of another try, which goes on where an earlier one stopped."""
    if before is None:
        return row

    if before.state is State.DONE:
        return replace(row, version=before.version)
    return replace(
        row,
        version=before.version,
        done_windows=before.done_windows,
        counts=before.counts,
        stored_keys=before.stored_keys,
        created_at=before.created_at,
    )


def _again(row: Extraction) -> Remembered:
    counts = Counts(row.counts.extracted, 0, row.counts.stored + row.counts.unchanged, row.counts.refused)
    return Remembered(
        counts,
        extraction_id=row.id,
        reason=Reason.ALREADY_DONE.value,
        message=MESSAGES[Reason.ALREADY_DONE],
        model=row.model,
    )


def _waiting(row: Extraction) -> Remembered:
    told = row.message if row.held else MESSAGES[Reason.DEFERRED]
    return Remembered(
        row.counts,
        extraction_id=row.id,
        state=row.shown_state,
        reason=row.reason if row.held else Reason.DEFERRED.value,
        message=told,
    )


def _remembered(row: Extraction, items: tuple[StoredItem, ...]) -> Remembered:
    return Remembered(row.counts, items, row.id, row.shown_state, row.reason, row.message, row.model)
