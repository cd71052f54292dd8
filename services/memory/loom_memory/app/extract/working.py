"""Works on one extraction: its windows one after the other, each stored before the next is asked for."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from loom_common.clock import Clock, MonotonicVersions
from loom_common.errors import Conflict
from loom_memory.app.extract.facts import FactExtractor
from loom_memory.app.extract.storing import ConversationStore, Filing, StoredItem, count
from loom_memory.app.llm import LlmPort
from loom_memory.domain.conversation import Message, Window, messages_from_json, windows
from loom_memory.domain.extractions import MESSAGES, Counts, Extraction, Reason
from loom_memory.store.erasures import ErasureRepository
from loom_memory.store.extractions import ExtractionRepository

# Looking for encoded files in more than this would hold the event loop for more than some 50 ms.
_INLINE_CHARS: Final = 20_000
_ERASED: Final = "It is being erased, or was; what was not stored of it before that is not stored."


@dataclass(frozen=True, slots=True)
class Worked:
    """An extraction after an attempt: its row, not stored yet, and what became of each fact of this attempt."""

    row: Extraction
    items: tuple[StoredItem, ...]
    is_whole: bool
    """Whether every part of the conversation is done; else an answer of the model could not be read."""


class ExtractionWork:
    """Does the work of one extraction, in a request or in the background.

    Every part's facts are stored before the row says that it is done, under keys that are the same the next time: an
    attempt that is killed anywhere loses nothing and doubles nothing.
    """

    def __init__(
        self,
        llm: LlmPort,
        facts: FactExtractor,
        store: ConversationStore,
        extractions: ExtractionRepository,
        erasures: ErasureRepository,
        clock: Clock,
    ) -> None:
        self._llm = llm
        self._facts = facts
        self._store = store
        self._extractions = extractions
        self._erasures = erasures
        self._clock = clock
        self._versions = MonotonicVersions(clock)

    async def put(self, row: Extraction) -> Extraction:
        """Stores the next version of a row and returns it."""
        made = replace(row, version=self._versions.next(after=row.version))
        await self._extractions.put(made)
        return made

    async def note(self, row: Extraction, became: Callable[[Extraction], Extraction]) -> Extraction | None:
        """Stores what became of a row as it is now, or nothing where an erasure has taken it or is about to."""
        current = await self._held(row)
        return None if current is None else await self.put(became(current))

    async def _held(self, row: Extraction) -> Extraction | None:
        current = await self._extractions.get(row.scope, row.id)
        if current is None or await self._erasures.takes(row.scope, row.user_id, row.created_at):
            return None
        return current

    async def _require_held(self, row: Extraction) -> None:
        if await self._held(row) is None:
            raise Conflict(_ERASED, detail={"extraction_id": row.id})

    async def work(self, row: Extraction, check: Callable[[], Awaitable[None]] | None = None) -> Worked:
        """Takes the facts out of what is not done yet and stores them.

        Args:
            row: The extraction, under a lease.
            check: Called before each part is stored; raises where the lease is not ours any more.

        Raises:
            Conflict: It was erased meanwhile; from then on nothing of it is stored.
            LoomError: The model, the store or the embedder did not do its part; what is done stays done.
        """
        messages = messages_from_json(json.loads(row.payload))
        if (await self._llm.served()).fake:
            return await self._as_they_are(row, messages)
        items: list[StoredItem] = []
        model, is_whole = row.model, True
        for place, window in enumerate(await _windows(messages)):
            if place in row.done_windows:
                continue
            found = await self._facts.facts(window, row.capture)
            if check is not None:
                await check()
            await self._require_held(row)
            stored = await self._store.facts(_filing(row), messages, found.facts)
            items += stored
            model = found.model or model
            if not found.readable:
                is_whole = False
                continue
            now = self._clock.now()
            counts = count(stored, len(found.facts))
            await self._require_held(row)
            row = await self.put(row.progressed(place, counts, [one.key for one in stored if one.version], now))
        return self._worked(row, items, model, is_whole=is_whole)

    async def _as_they_are(self, row: Extraction, messages: Sequence[Message]) -> Worked:
        """Stores the messages without a model, so that a deployment without a key remembers something."""
        await self._require_held(row)
        items = await self._store.verbatim(_filing(row), messages)
        now = self._clock.now()
        row = row.progressed(0, count(items, 0), [one.key for one in items if one.version], now)
        return Worked(
            row.finished(Reason.NO_MODEL.value, MESSAGES[Reason.NO_MODEL], "", now), tuple(items), is_whole=True
        )

    def _worked(self, row: Extraction, items: Sequence[StoredItem], model: str, *, is_whole: bool) -> Worked:
        reason = _reason(row.counts) if is_whole else Reason.UNREADABLE
        told = "" if reason is None else MESSAGES[reason]
        finished = row.finished("" if reason is None else reason.value, told, model, self._clock.now())
        return Worked(finished, tuple(items), is_whole)


async def _windows(messages: Sequence[Message]) -> list[Window]:
    if sum(len(message.content) for message in messages) > _INLINE_CHARS:
        return await asyncio.to_thread(lambda: list(windows(messages)))
    return list(windows(messages))


def _reason(counts: Counts) -> Reason | None:
    if counts.stored:
        return None
    if counts.unchanged:
        return Reason.UNCHANGED
    return Reason.REFUSED if counts.refused else Reason.NO_FACTS


def _filing(row: Extraction) -> Filing:
    return Filing(row.scope, row.enqueued_by, row.user_id, row.session_id, row.agent, row.tags, row.source)
