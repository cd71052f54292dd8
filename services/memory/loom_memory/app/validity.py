"""When a memory holds, changed without its words: a version more with the same text and the same vectors."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import LoomError, Overloaded
from loom_memory.app.commit import Commits, lock_key
from loom_memory.app.drafts import Change, Draft
from loom_memory.app.embedding import Chunk, EmbeddingPort, stub_chunks
from loom_memory.app.write_versions import WriteVersions
from loom_memory.domain.analyzer import analyze_text
from loom_memory.domain.conflict import Mark, State, is_of
from loom_memory.domain.keys import FIRST_KEY_CHUNK
from loom_memory.domain.memory import Identity, Memory, Stated, to_milliseconds
from loom_memory.domain.supersession import ended
from loom_memory.store.conflicts import ConflictRepository
from loom_memory.store.copies import VersionVectors
from loom_memory.store.memories import MemoryRepository

logger = logging.getLogger(__name__)

# Source: chosen, as for other writes.
_ROUNDS: Final = 10
_FIRST_WAIT_S: Final = 0.01
_TICK: Final = timedelta(milliseconds=1)


class Validity:
    """Ends and reopens the times of memories."""

    def __init__(
        self,
        commits: Commits,
        memories: MemoryRepository,
        vectors: VersionVectors,
        conflicts: ConflictRepository,
        embedding: EmbeddingPort,
        *,
        clock: Clock,
        numbers: WriteVersions,
    ) -> None:
        self._commits = commits
        self._memories = memories
        self._vectors = vectors
        self._conflicts = conflicts
        self._embedding = embedding
        self._clock = clock
        self._numbers = numbers

    async def restate(
        self, scope: Scope, identity: Identity, becomes: Callable[[Memory], Stated | None]
    ) -> Memory | None:
        """Stores what `becomes` says of the current version, and returns the row that holds then.

        Args:
            scope: Namespace of the memory.
            identity: The memory.
            becomes: Returns what is stated from now on, or None where the row is not the one that was meant.

        Returns:
            The current row; None where there is none, or `becomes` says that it is another.

        Raises:
            Overloaded: Other processes keep writing the memory.
        """
        async with self._commits.locks.all_of([lock_key(scope, identity)]):
            with self._numbers.write() as numbers:
                wait_s = _FIRST_WAIT_S
                for _ in range(_ROUNDS):
                    now = to_milliseconds(self._clock.now())
                    base = (await self._memories.current(scope, [identity])).get(identity)
                    stated = None if base is None or base.tombstoned_at is not None else becomes(base)
                    if base is None or stated is None:
                        return None
                    if stated == base.stated:
                        return base
                    change = Change(
                        place=0,
                        draft=Draft(identity, base.content, stated=stated),
                        base=base,
                        chunks=await self._chunks(base),
                        text=analyze_text(base.content.value),
                        like=base,
                    )
                    # Never past another's claim: what that one writes is the text whose time is meant.
                    done = await self._commits.store(scope, [change], base.actor, numbers, now, {})
                    if done.stored:
                        return done.stored[0].memory
                    await asyncio.sleep(random.uniform(wait_s / 2, wait_s))  # noqa: S311  (no secret)
                    wait_s *= 2
        raise Overloaded("Others are writing the same key; try again.")

    async def end(self, mark: Mark) -> Mark:
        """Ends the older memory of a mark where that is still to do, and returns the mark as it is then.

        Raises:
            LoomError: The store does not answer; the sweep does it later.
        """

        def becomes(memory: Memory) -> Stated | None:
            if memory.version != mark.older_version:
                return memory.stated if memory.invalid_at == mark.ends_at else None
            at = mark.ends_at if memory.invalid_at is None else min(mark.ends_at, memory.invalid_at)
            return ended(memory, at)

        older = await self.restate(mark.scope, mark.older, becomes)
        now = max(to_milliseconds(self._clock.now()), mark.created_at + _TICK)
        with self._numbers.write() as numbers:
            version = numbers.next(after=mark.version)
        if older is None:
            settled = mark.became(State.STALE, now, version)
        else:
            settled = mark.became(State.OPEN, now, version, older_version=older.version)
        await self._conflicts.put([settled])
        return settled

    async def end_all(self, marks: Sequence[Mark]) -> None:
        """Ends the older memories of marks; what fails is left to the sweep."""
        # What one mark ended has another version for the next.
        moved: dict[tuple[Identity, int], int] = {}
        for mark in marks:
            seen = mark.older, mark.older_version
            try:
                settled = await self.end(replace(mark, older_version=moved.get(seen, mark.older_version)))
                if settled.state is State.OPEN:
                    moved[seen] = settled.older_version
            except LoomError as error:
                logger.warning("older_memory_not_ended", extra={"reason": error.reason.value})

    async def sweep(self, grace: timedelta, limit: int) -> int:
        """Finishes what interrupted writes left of marks, and returns how many those were."""
        marks = await self._conflicts.unsettled(self._clock.now() - grace, limit)
        for mark in marks:
            rows = await self._memories.current(mark.scope, [mark.newer, mark.older])
            if is_of(mark, rows.get(mark.newer), rows.get(mark.older)):
                await self.end(mark)
                continue
            now = max(to_milliseconds(self._clock.now()), mark.created_at + _TICK)
            with self._numbers.write() as numbers:
                version = numbers.next(after=mark.version)
            await self._conflicts.put([mark.became(State.STALE, now, version)])
        return len(marks)

    async def _chunks(self, memory: Memory) -> list[Chunk]:
        """Returns the vectors of a version, or a stand-in where it has none of the served model."""
        model = (await self._embedding.served_model()).name
        found = await self._vectors.of(memory.scope, memory.identity, memory.version, model)
        if not any(row.chunk < FIRST_KEY_CHUNK for row in found):
            return stub_chunks(memory.content.value)
        return [
            Chunk(row.start_offset, row.end_offset, row.vector, of_key=row.chunk >= FIRST_KEY_CHUNK) for row in found
        ]


def until(memory: Memory, at: datetime | None) -> Stated:
    """Returns what is stated of a memory that holds until `at`, or for ever."""
    if at is not None:
        return ended(memory, at)
    stated = memory.stated
    return Stated(stated.valid_at, None, stated.attestation, stated.sensitivity, stated.derived_from)
