"""Has a model note what several memories say together: observations, reflections on sessions, digests of days."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock, MonotonicVersions
from loom_common.errors import BudgetExhausted, LoomError
from loom_common.features import Feature
from loom_common.leases import Lease
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.held import HOLDS
from loom_common.prompts import Prompt
from loom_common.provenance import principal_of
from loom_memory.app.drafts import Draft
from loom_memory.app.extract.storing import Writer
from loom_memory.app.llm import LlmPort
from loom_memory.app.passes import Passes, WorkerPass
from loom_memory.domain.fencing import fenced
from loom_memory.domain.memory import Identity, Stated
from loom_memory.domain.mining import Group, Grouping, Note, Source, note_content, note_key, read_notes, sources_text
from loom_memory.domain.prompts import mining as prompts
from loom_memory.store.entities import EntityRepository
from loom_memory.store.mining import MiningRepository
from loom_memory.store.worker_passes import WorkerPassRepository

logger = logging.getLogger(__name__)

ACTOR: Final = "process:memory"
"""Who writes the notes; no principal, so that what is done with them later is for whose namespace they are in."""

_LOOK_S: Final = 300.0
_SESSION_ENDS_AFTER: Final = timedelta(minutes=30)
_GROUPS: Final = 50
_SOURCES: Final = 100
_TOKENS: Final = 1_024
_TIMEOUT_S: Final = 120.0
# A group that a model fails for so often is passed over.
_MOST_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Mining:
    """One kind of notes.

    Attributes:
        kind: Kind of the memories that come of it.
        least: Fewest memories of a group.
        least_sources: Fewest memories that a note rests on.
        one: Whether a group has one note, under a key that stays, so that a later one takes its place.
    """

    feature: Feature
    setting: str
    prompt: Prompt
    grouping: Grouping
    kind: str
    least: int
    least_sources: int
    one: bool


OBSERVATIONS: Final = Mining(
    Feature.OBSERVE_EXTRACT,
    "LOOM_OBSERVE_EXTRACT_ENABLED",
    prompts.OBSERVATIONS,
    Grouping.DAY,
    "observation",
    5,
    2,
    False,
)
REFLECTION: Final = Mining(
    Feature.REFLECTION_DISTILL,
    "LOOM_REFLECTION_DISTILL_ENABLED",
    prompts.REFLECTION,
    Grouping.SESSION,
    "reflection",
    3,
    1,
    True,
)
DIGEST: Final = Mining(
    Feature.PERIOD_DIGEST, "LOOM_PERIOD_DIGEST_ENABLED", prompts.DIGEST, Grouping.DAY, "digest", 3, 1, True
)


class MiningWorker:
    """Looks at groups in the order of their newest memory, each once, for its newest principal writer.

    The notes are stored before the cursor passes a group: what is killed between is done again, under the same keys.
    """

    def __init__(
        self,
        mining: Mining,
        memories: MiningRepository,
        active: EntityRepository,
        cursors: WorkerPassRepository,
        llm: LlmPort,
        writer: Writer,
        passes: Passes,
        model_calls: ModelCallGate,
        clock: Clock,
        *,
        interval_s: float = _LOOK_S,
    ) -> None:
        self.feature = mining.feature
        self.setting = mining.setting
        self.interval_s = interval_s
        self._mining = mining
        self._memories = memories
        self._active = active
        self._cursors = cursors
        self._llm = llm
        self._writer = writer
        self._passes = passes
        self._model_calls = model_calls
        self._clock = clock
        self._versions = MonotonicVersions(clock)
        self._done: dict[tuple[Scope, str, str], int] = {}
        self._tries: Counter[tuple[Scope, str, str]] = Counter()

    async def has_work(self) -> bool:
        """See `Worker.has_work`: a fake model has nothing to say."""
        try:
            if (await self._llm.served()).fake:
                return False
        except LoomError:
            return False
        cursors = await self._cursors.cursors(self.feature.value)
        active = await self._active.active(self._model_calls.off())
        return any(newest > cursors.get(scope, 0) for scope, newest in active.items())

    async def run_pass(self, lease: Lease) -> Mapping[str, int]:
        """See `Worker.run_pass`."""
        counts: Counter[str] = Counter()
        cursors = await self._cursors.cursors(self.feature.value)
        async with self._passes.passing() as passing:
            for scope, newest in (await self._active.active(self._model_calls.off())).items():
                if newest > cursors.get(scope, 0):
                    counts.update(await self._namespace(scope, cursors.get(scope, 0), lease, passing))
        return dict(counts)

    async def _namespace(self, scope: Scope, after: int, lease: Lease, passing: WorkerPass) -> Counter[str]:
        counts: Counter[str] = Counter()
        now = self._clock.now()
        groups = await self._memories.groups(
            self._mining.grouping, scope, after=after, before=self._over(now), now=now, least=self._mining.least,
            limit=_GROUPS,
        )  # fmt: skip
        place, waits = after, False
        for group in groups:
            told = (scope, group.user_id, group.name)
            if self._done.get(told, 0) < group.newest:
                outcome = await self._group(scope, group, lease, passing)
                counts[outcome] += 1
                if outcome in ("held", "failed"):
                    # Others of the namespace go on; the cursor waits in front of this one.
                    waits = True
                    continue
                self._done[told] = group.newest
            if not waits:
                place = group.newest
                self._done.pop(told, None)
        if place > after:
            await lease.check()
            await self._cursors.move(self.feature.value, scope, place, self._versions.next())
        return counts

    async def _group(self, scope: Scope, group: Group, lease: Lease, passing: WorkerPass) -> str:
        """Makes the notes of a group and says what came of it."""
        told = (scope, group.user_id, group.name)
        sources = await self._memories.sources(self._mining.grouping, scope, group, self._clock.now(), _SOURCES)
        if not sources:
            return "empty"
        try:
            with passing.acting(scope, _writer_of(sources), group.user_id):
                notes = await self._notes(sources)
                await lease.check()
                return await self._store(scope, group, notes)
        except (*HOLDS, BudgetExhausted) as error:
            logger.warning("notes_held", extra={"org": scope.org, "reason": error.reason.value})
            return "held"
        except LoomError as error:
            self._tries[told] += 1
            logger.warning("notes_not_made", extra={"org": scope.org, "reason": error.reason.value})
            if self._tries[told] < _MOST_TRIES:
                return "failed"
            del self._tries[told]
            return "given_up"

    async def _notes(self, sources: Sequence[Source]) -> list[Note]:
        answer = await self._llm.complete(
            self._mining.prompt.text,
            fenced("memories", sources_text(sources)),
            max_tokens=_TOKENS,
            json=True,
            feature=self.feature.value,
            prompt=self._mining.prompt,
            timeout_s=_TIMEOUT_S,
        )
        notes = None if answer.fake else read_notes(answer.text, sources, self._mining.least_sources)
        if notes is None:
            logger.warning("notes_unreadable", extra={"worker": self.feature.value})
        return notes or []

    async def _store(self, scope: Scope, group: Group, notes: Sequence[Note]) -> str:
        kept = notes[:1] if self._mining.one else notes
        drafts = [
            Draft(
                Identity(self._key(group, note), group.user_id, group.session_id),
                note_content(note, self._mining.kind),
                stated=Stated(derived_from=tuple(source.identity.key for source in note.sources)),
                has_own_key=self._mining.one,
            )
            for note in kept
        ]
        if not drafts:
            return "nothing_to_say"
        outcomes = await self._writer.set_many(scope, drafts, ACTOR)
        for outcome in outcomes:
            if isinstance(outcome, LoomError) and outcome.row.resend:
                raise outcome
        return "noted"

    def _key(self, group: Group, note: Note) -> str:
        if self._mining.one:
            return note_key(self._mining.kind, group.name)
        return note_key(self._mining.kind, note.text.casefold())

    def _over(self, now: datetime) -> datetime:
        """Returns since when a group has to have had no news."""
        if self._mining.grouping is Grouping.DAY:
            return now.replace(hour=0, minute=0, second=0, microsecond=0)
        return now - _SESSION_ENDS_AFTER


def _writer_of(sources: Sequence[Source]) -> str:
    """Returns the newest writer that is a principal; an update counts as a new write."""
    newest_first = sorted(sources, key=lambda source: source.version, reverse=True)
    return next((source.actor for source in newest_first if principal_of(source.actor)), newest_first[0].actor)
