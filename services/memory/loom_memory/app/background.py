"""What runs in the background, as the operator sees it: leaders, last passes, and what was given up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from loom_common.clock import Clock
from loom_common.features import Feature
from loom_common.leases import Leases
from loom_memory.app.extract.working import ExtractionWork
from loom_memory.domain.extractions import Extraction, State
from loom_memory.store.extractions import ExtractionRepository, QueueCounts
from loom_memory.store.worker_passes import LastPass, WorkerPassRepository

_MOST_RETRIED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Roster:
    """One worker of this build.

    Attributes:
        feature: Its name and what it does.
        lease: Lease of its leader.
        enabled: Whether it is on.
        setting: Setting that switches it; empty where it is always on.
    """

    feature: Feature
    lease: str
    enabled: bool = True
    setting: str = ""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker as it is now."""

    roster: Roster
    holder: str = ""
    last: LastPass | None = None
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Dead:
    """What to look for among what was given up; an empty part keeps everything."""

    org: str = ""
    namespace: str = ""
    ids: Sequence[str] = field(default_factory=tuple)


class Background:
    """Tells of workers, and gives work another try.

    Args:
        roster: The workers of this build.
        leases: Leaders.
        passes: Their last passes.
        extractions: The queue.
        work: Writes its rows.
        ended: Names workers of this process that ended by a fault.
        nudge: Has the queue looked at.
        clock: Time.
    """

    def __init__(
        self,
        roster: Sequence[Roster],
        leases: Leases,
        passes: WorkerPassRepository,
        extractions: ExtractionRepository,
        work: ExtractionWork,
        *,
        ended: Callable[[], Sequence[str]],
        nudge: Callable[[], None],
        clock: Clock,
    ) -> None:
        self.roster = tuple(sorted(roster, key=lambda one: one.feature.value))
        self._leases = leases
        self._passes = passes
        self._extractions = extractions
        self._work = work
        self._ended = ended
        self._nudge = nudge
        self._clock = clock

    async def workers(self) -> list[WorkerView]:
        """Returns every worker, by name."""
        last, ended = await self._passes.last(), set(self._ended())
        return [
            WorkerView(
                one,
                await self._leases.holder_of(one.lease) or "",
                last.get(one.feature.value),
                one.feature.value in ended,
            )
            for one in self.roster
        ]

    async def queue(self) -> QueueCounts:
        """Counts the extractions by where they are."""
        return await self._extractions.counts(self._clock.now())

    async def dead(self, wanted: Dead, limit: int) -> list[Extraction]:
        """Returns what is not tried any more, newest first."""
        named = await self._extractions.dead(wanted.org, wanted.namespace, wanted.ids, limit)
        rows = [await self._extractions.get(scope, extraction_id) for scope, extraction_id in named]
        return [row for row in rows if row is not None and row.state is State.DEAD]

    async def retry(self, wanted: Dead) -> int:
        """Has what was given up tried again, and returns how many that are."""
        rows = await self.dead(wanted, _MOST_RETRIED)
        for row in rows:
            await self._work.put(row.again(self._clock.now()))
        if rows:
            self._nudge()
        return len(rows)
