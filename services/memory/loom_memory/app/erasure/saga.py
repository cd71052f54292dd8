"""One erasure from its beginning to its receipt, a step at a time; each can be done again, and any process goes on."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from loom_common.clock import Clock
from loom_common.erasure import NamedMemory, Subject
from loom_common.errors import LoomError
from loom_memory.app.erasure.peers import ErasurePeer
from loom_memory.app.erasure.rows import RowEraser
from loom_memory.app.write_versions import WriteVersions
from loom_memory.store.erasures import Asked, ErasureRepository, Receipt, Remaining
from loom_memory.store.redactions import Replacement

logger = logging.getLogger(__name__)

# Memories that one call to a service names.
_BATCH: Final = 1_000
# Writes of this process that were under way end within the time of a call.
_SETTLE_POLL_S: Final = 0.05
_FIRST_STEP: Final = 1

# What replacing a text does in these is more than removing rows.
_REWRITTEN: Final = frozenset({"memory", "memory_versions", "memory_embeddings"})
_HIDING: Final = "memory"


class ErasureSaga:
    """Carries erasures out.

    Steps, in order: the names of everything that is erased are noted, since later steps look in caches by names whose
    own rows are gone by then; `memory` hides and removes its rows; every other table of every service removes its own;
    all of them are counted again; the files that were replaced are waited for. What is counted and not gone, such as a
    write that was under way, begins the removal again.
    """

    def __init__(
        self,
        erasures: ErasureRepository,
        peers: Sequence[ErasurePeer],
        rows: RowEraser,
        clock: Clock,
        numbers: WriteVersions,
        *,
        settle_s: float,
    ) -> None:
        # The first peer is this service. After `settle_s` no other process writes what was begun before.
        self._erasures = erasures
        self._peers = tuple(peers)
        self._rows = rows
        self._clock = clock
        self._numbers = numbers
        self._settle_s = settle_s

    async def advance(self, receipt: Receipt) -> Receipt:
        """Takes an erasure as far as it comes now, and returns it; what it waits for stands in it.

        Raises:
            LoomError: A service or the store cannot be asked; the step is done again later.
        """
        asked = await self._erasures.asked(receipt)
        if asked is None:
            return await self._finish(receipt)
        subject = subject_of(receipt, asked)
        steps = await self._steps(asked)
        if receipt.step < _FIRST_STEP:
            await self._settled(subject)
            if asked.user_id:
                await self._erasures.collect(receipt, asked.user_id, subject.upto)
            receipt = await self._save(replace(receipt, step=_FIRST_STEP))
        while receipt.step <= len(steps):
            peer, table = steps[receipt.step - 1]
            await self._erase(receipt, asked, subject, peer, table)
            receipt = await self._save(replace(receipt, step=receipt.step + 1, rewritten_at=None))
        return await self._verify(receipt, asked, subject)

    async def _verify(self, receipt: Receipt, asked: Asked, subject: Subject) -> Receipt:
        settled_at = receipt.started_at.timestamp() + self._settle_s
        if self._clock.now().timestamp() < settled_at:
            return await self._save(replace(receipt, waiting_for="writes that were under way"))
        if receipt.rewritten_at is None:
            receipt = await self._counted(receipt, asked, subject)
            if receipt.step == _FIRST_STEP:
                return receipt
            receipt = await self._save(replace(receipt, rewritten_at=self._clock.now()))
        assert receipt.rewritten_at is not None, "set above"
        if files := await self._replaced_files(receipt.rewritten_at):
            return await self._save(replace(receipt, waiting_for=f"replaced files of {', '.join(files)}"))
        receipt = await self._counted(receipt, asked, subject)
        if receipt.step == _FIRST_STEP:
            return receipt
        return await self._finish(receipt)

    async def _finish(self, receipt: Receipt) -> Receipt:
        await self._erasures.finish(receipt, self._clock.now())
        found = await self._erasures.get(receipt.org, receipt.erasure_id)
        assert found is not None, "it was stored a moment ago"
        return found

    async def _counted(self, receipt: Receipt, asked: Asked, subject: Subject) -> Receipt:
        """Counts what is left, and begins the removal again where something is."""
        left = tuple(await self._count(receipt, asked, subject))
        held = [one.table for one in left if one.count]
        if not held:
            return replace(receipt, remaining=left)
        again = f"rows of {', '.join(held)} that were written meanwhile"
        return await self._save(
            replace(receipt, step=_FIRST_STEP, rewritten_at=None, remaining=left, waiting_for=again)
        )

    async def _steps(self, asked: Asked) -> list[tuple[ErasurePeer, str]]:
        """Returns the tables in the order of their removal; those that were rewritten with `memory` are left out."""
        steps: list[tuple[ErasurePeer, str]] = [(self._peers[0], _HIDING)]
        for peer in self._peers:
            for held in await peer.census(None):
                is_done = held.table == _HIDING or (asked.rewrites and held.table in _REWRITTEN)
                if not held.no_memory_content and not (peer is self._peers[0] and is_done):
                    steps.append((peer, held.table))
        return steps

    async def _erase(self, receipt: Receipt, asked: Asked, subject: Subject, peer: ErasurePeer, table: str) -> None:
        is_own = peer is self._peers[0]
        async for part in self._parts(receipt, subject):
            if is_own and asked.rewrites and table == _HIDING:
                await self._rows.redact(part, _replacement(asked))
            else:
                await peer.erase(part, table)

    async def _count(self, receipt: Receipt, asked: Asked, subject: Subject) -> list[Remaining]:
        """Counts what is left of the subject in every table."""
        found: dict[tuple[str, str], Remaining] = {}
        async for part in self._parts(receipt, subject):
            for peer in self._peers:
                rewritten = await self._rewritten(asked, part, peer)
                for held in await peer.census(part):
                    key = peer.name, held.table
                    before = found[key].count if key in found else 0
                    rows = rewritten.get(held.table, held.remaining)
                    found[key] = Remaining(peer.name, held.table, not held.no_memory_content, before + rows)
        return [found[key] for key in sorted(found)]

    async def _replaced_files(self, rewritten_at: datetime) -> list[str]:
        """Returns the tables of which replaced files are still there."""
        return [held.table for peer in self._peers for held in await peer.census(None, rewritten_at) if held.remaining]

    async def _rewritten(self, asked: Asked, part: Subject, peer: ErasurePeer) -> dict[str, int]:
        if peer is not self._peers[0] or not asked.rewrites:
            return {}
        return await self._rows.remaining(part, _replacement(asked))

    async def _parts(self, receipt: Receipt, subject: Subject) -> AsyncIterator[Subject]:
        """Yields the subject in parts of so many memories as one call names; the first names the user as well."""
        after: NamedMemory | None = None
        part = subject
        while memories := await self._erasures.memories(receipt, after, _BATCH):
            yield replace(part, memories=tuple(memories))
            part, after = replace(subject, user_id=""), memories[-1]
            if len(memories) < _BATCH:
                return
        if after is None:
            yield part

    async def _settled(self, subject: Subject) -> None:
        """Returns once every write of this process that was begun before the erasure is stored."""
        while self._numbers.settled <= subject.upto:  # noqa: ASYNC110  (a number of the clock, which tells nobody)
            await asyncio.sleep(_SETTLE_POLL_S)

    async def _save(self, receipt: Receipt) -> Receipt:
        await self._erasures.save(receipt)
        return receipt


def subject_of(receipt: Receipt, asked: Asked) -> Subject:
    """Returns what is erased, its memories left out."""
    return Subject(
        org=receipt.org,
        namespace=receipt.namespace,
        user_id=asked.user_id,
        memories=(),
        started_at=receipt.started_at,
        texts_only=asked.rewrites,
    )


def _replacement(asked: Asked) -> Replacement:
    return Replacement(asked.text, asked.regex, asked.replacement)


def told(error: LoomError) -> str:
    """Returns what an erasure waits for when a step failed."""
    return f"another attempt after {error.reason.value}"
