"""Has a model read what memories say of users, and keeps what the memories bear out in their profiles."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock, MonotonicVersions
from loom_common.errors import BudgetExhausted, InvalidArgument, LoomError
from loom_common.features import Feature
from loom_common.leases import Lease
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.held import HOLDS
from loom_common.provenance import principal_of
from loom_memory.app.llm import LlmPort
from loom_memory.app.passes import Passes, WorkerPass
from loom_memory.domain.fencing import fenced
from loom_memory.domain.mining import Source, sources_text
from loom_memory.domain.prompts import profiles as prompts
from loom_memory.profiles.app.schemas import ProfileSchemas
from loom_memory.profiles.app.sections import ProfileSections, Writing
from loom_memory.profiles.domain.folding import Folded, fields_text, profile_text, read_sections
from loom_memory.profiles.domain.schemas import ProfileSchema
from loom_memory.profiles.domain.sections import Origin, Owner
from loom_memory.profiles.store.schemas import SchemaRepository
from loom_memory.profiles.store.sources import FoldSourceRepository
from loom_memory.store.entities import EntityRepository
from loom_memory.store.worker_passes import WorkerPassRepository

logger = logging.getLogger(__name__)

ACTOR: Final = "process:memory"
_LOOK_S: Final = 300.0
SLOTS: Final = 10
"""Users of a namespace that one pass reads for. Source: chosen."""
# Where calls for some are held, others take their places.
_READ_PER_SLOT: Final = 4
_SOURCES: Final = 100
_TOKENS: Final = 2_048
_TIMEOUT_S: Final = 120.0
_MOST_TRIES: Final = 3
_HELD_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Folding:
    """One kind of fold; a structured one is for namespaces with a schema, the other for those without."""

    feature: Feature
    setting: str
    is_structured: bool
    model: str = ""


class ProfileFolds:
    """Reads for users in the order of their news, each for the newest principal writer of what is read.

    Sections are stored before the cursor passes a user: what is killed between is done again, and finds what it would
    write there already.
    """

    def __init__(
        self,
        folding: Folding,
        sources: FoldSourceRepository,
        active: EntityRepository,
        schema_rows: SchemaRepository,
        schemas: ProfileSchemas,
        sections: ProfileSections,
        cursors: WorkerPassRepository,
        llm: LlmPort,
        passes: Passes,
        model_calls: ModelCallGate,
        clock: Clock,
        *,
        interval_s: float = _LOOK_S,
        slots: int = SLOTS,
    ) -> None:
        self.feature = folding.feature
        self.setting = folding.setting
        self.interval_s = interval_s
        self._folding = folding
        self._sources = sources
        self._active = active
        self._schema_rows = schema_rows
        self._schemas = schemas
        self._sections = sections
        self._cursors = cursors
        self._llm = llm
        self._passes = passes
        self._model_calls = model_calls
        self._clock = clock
        self._slots = slots
        self._versions = MonotonicVersions(clock)
        self._done: dict[tuple[Scope, str], int] = {}
        self._tries: Counter[tuple[Scope, str]] = Counter()
        self._held: dict[tuple[Scope, str], float] = {}

    async def has_work(self) -> bool:
        """See `Worker.has_work`: a fake model reads nothing."""
        try:
            if (await self._llm.served()).fake and not self._folding.model:
                return False
        except LoomError:
            return False
        cursors = await self._cursors.cursors(self.feature.value)
        return any(newest > cursors.get(scope, 0) for scope, newest in (await self._scopes()).items())

    async def run_pass(self, lease: Lease) -> Mapping[str, int]:
        """See `Worker.run_pass`."""
        counts: Counter[str] = Counter()
        cursors = await self._cursors.cursors(self.feature.value)
        async with self._passes.passing() as passing:
            for scope, newest in (await self._scopes()).items():
                if newest > cursors.get(scope, 0):
                    counts.update(await self._namespace(scope, cursors.get(scope, 0), lease, passing))
        return dict(counts)

    async def _scopes(self) -> dict[Scope, int]:
        off = self._model_calls.off()
        with_schema = set(await self._schema_rows.scopes(off))
        active = await self._active.active(off)
        return {
            scope: newest for scope, newest in active.items() if (scope in with_schema) == self._folding.is_structured
        }

    async def _namespace(self, scope: Scope, after: int, lease: Lease, passing: WorkerPass) -> Counter[str]:
        counts: Counter[str] = Counter()
        held = self._held_users(scope)
        users = await self._sources.users(scope, after, self._clock.now(), held, self._slots * _READ_PER_SLOT)
        schema = await self._schemas.get(scope) if self._folding.is_structured else None
        # The cursor waits in front of the first user that is still to be read for.
        place, waits, used = after, bool(held), 0
        for user_id, newest in users:
            if used == self._slots:
                break
            told = scope, user_id
            if self._done.get(told, 0) < newest:
                outcome = await self._user(scope, user_id, schema, lease, passing)
                counts[outcome] += 1
                used += outcome != "held"
                if outcome in ("held", "failed"):
                    waits = True
                    continue
                self._done[told] = newest
            if not waits:
                place = newest
                self._done.pop(told, None)
        if place > after:
            await lease.check()
            await self._cursors.move(self.feature.value, scope, place, self._versions.next())
        return counts

    async def _user(
        self, scope: Scope, user_id: str, schema: ProfileSchema | None, lease: Lease, passing: WorkerPass
    ) -> str:
        """Reads for one user and says what came of it."""
        told = scope, user_id
        sources = await self._sources.sources(scope, user_id, self._clock.now(), _SOURCES)
        if not sources:
            return "empty"
        try:
            with passing.acting(scope, _writer_of(sources), user_id):
                folded = await self._read(scope, Owner(user_id), sources, schema)
                await lease.check()
                return await self._store(scope, Owner(user_id), folded)
        except (*HOLDS, BudgetExhausted) as error:
            self._held[told] = self._clock.monotonic_s() + (error.retry_after_s or _HELD_S)
            logger.warning("profile_held", extra={"org": scope.org, "reason": error.reason.value})
            return "held"
        except LoomError as error:
            self._tries[told] += 1
            logger.warning("profile_not_folded", extra={"org": scope.org, "reason": error.reason.value})
            if self._tries[told] < _MOST_TRIES:
                return "failed"
            del self._tries[told]
            return "given_up"

    async def _read(
        self, scope: Scope, owner: Owner, sources: Sequence[Source], schema: ProfileSchema | None
    ) -> list[Folded]:
        prompt = prompts.FREE if schema is None else prompts.STRUCTURED
        parts = [fenced("memories", sources_text(sources))]
        parts.append(fenced("profile", profile_text(await self._sections.of_owner(scope, owner))))
        if schema is not None:
            parts.append(fenced("fields", fields_text(schema)))
        answer = await self._llm.complete(
            prompt.text,
            "\n".join(parts),
            max_tokens=_TOKENS,
            json=True,
            feature=self.feature.value,
            model=self._folding.model or None,
            prompt=prompt,
            timeout_s=_TIMEOUT_S,
        )
        folded = None if answer.fake else read_sections(answer.text, sources, schema)
        if folded is None:
            logger.warning("profile_unreadable", extra={"worker": self.feature.value})
        return folded or []

    async def _store(self, scope: Scope, owner: Owner, folded: Sequence[Folded]) -> str:
        is_new = False
        for one in folded:
            evidence = tuple(source.identity for source in one.sources)
            writing = Writing(owner, one.label, one.value, ACTOR, origin=Origin.FOLD, evidence=evidence)
            try:
                is_new |= await self._sections.fold(scope, writing)
            except InvalidArgument as error:
                # A schema that has changed since, or a full profile: the others of the answer still count.
                logger.info("profile_section_refused", extra={"org": scope.org, "fields": str(error)})
        return "folded" if is_new else "nothing_new"

    def _held_users(self, scope: Scope) -> Collection[str]:
        now = self._clock.monotonic_s()
        self._held = {told: until for told, until in self._held.items() if until > now}
        return [user_id for held_scope, user_id in self._held if held_scope == scope]


def _writer_of(sources: Sequence[Source]) -> str:
    """Returns the newest writer that is a principal; an update counts as a new write."""
    newest_first = sorted(sources, key=lambda source: source.version, reverse=True)
    return next((source.actor for source in newest_first if principal_of(source.actor)), newest_first[0].actor)
