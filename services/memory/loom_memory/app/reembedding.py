"""Giving every stored text vectors of the served model, while searches go on."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from loom_common.attribution import Attribution
from loom_common.call import Scope
from loom_common.clickhouse import tagged
from loom_common.clock import Clock
from loom_common.errors import (
    Conflict,
    InvalidArgument,
    LoomError,
    ModelCallsOff,
    ModelCallUnattributed,
)
from loom_common.leases import Lease, LeaseLost, Leases
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.held import HOLDS
from loom_common.model_calls.jobs import for_org
from loom_common.model_calls.switch import calls_off
from loom_common.times import format_time
from loom_memory.app.batches import Pass, StoredTexts
from loom_memory.app.embedding import Chunk
from loom_memory.app.holds import WriterHolds
from loom_memory.app.vector_tables import VectorTable
from loom_memory.domain.vectors import Parts, VectorSpace
from loom_memory.store.rewrites import VectorRewrites, WaitingText

logger = logging.getLogger(__name__)

OP: Final = "memory.reembed"
LEASE: Final = "memory.vectors"
"""Held by whoever gives vectors to texts that lack them, so that no text gets them twice."""

RUN_LEASE: Final = "memory.reembed"
"""Held by the one run that is under way."""

LEASE_S: Final = 60.0
# The embedding worker gives way after each of its turns.
_LEASE_WAIT_S: Final = 60.0
_MOST_FAILURES: Final = 1_000


@dataclass(frozen=True, slots=True)
class ReembedOptions:
    """What a run does; an empty name is every one. `memory.reembed` describes each."""

    org: str = ""
    namespace: str = ""
    batch_size: int = 64
    dry_run: bool = False
    key_only: bool = False
    resume: bool = False
    delete_old: bool = False
    staged: bool = False
    collection: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """One text that could not be embedded."""

    table: str
    scope: Scope
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; counts are of the whole run, `failures` new since the progress before."""

    space: VectorSpace
    table: str = ""
    scope: Scope = field(default_factory=lambda: Scope("", ""))
    total: int = 0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    deleted: int = 0
    withheld: int = 0
    failures: tuple[Failure, ...] = ()
    finished: bool = False


def require_in_database_allowed(identifying: Sequence[str]) -> None:
    """Returns where the database may call a provider itself.

    Args:
        identifying: Names of the settings in force by which each model call names whom it is for, or passes a gateway
            that checks it. The database's own calls do neither.

    Raises:
        InvalidArgument: There are some.
    """
    if identifying:
        raise InvalidArgument.of(
            "in_database",
            f"cannot be used while {', '.join(identifying)} is set: the database's own calls name no customer and pass "
            "no gateway",
        )


class Reembedding:
    """Runs over all tables of vectors; one run at a time, in whichever process holds the lease.

    What is done is read from the tables, so a run that ends anywhere is gone on with by the next.
    """

    def __init__(
        self,
        tables: Sequence[VectorTable],
        texts: StoredTexts,
        rewrites: VectorRewrites,
        leases: Leases,
        model_calls: ModelCallGate,
        clock: Clock,
        *,
        identifying: Sequence[str] = (),
        lease_wait_s: float = _LEASE_WAIT_S,
    ) -> None:
        self.tables = tuple(tables)
        self._texts = texts
        self._rewrites = rewrites
        self._leases = leases
        self._model_calls = model_calls
        self._clock = clock
        self._identifying = tuple(identifying)
        self._lease_wait_s = lease_wait_s

    async def run(self, options: ReembedOptions) -> AsyncGenerator[Progress, None]:
        """Yields how far it is, at least after every batch; the last progress is finished.

        Raises:
            InvalidArgument: The options do not go together, or not with what this Loom has.
            ModelCallUnattributed: It names an organisation and no namespace, and calls to models name their agent.
            ModelCallsOff: The organisation that it names has switched its calls off.
            Conflict: Another run is under way, or the model was changed.
            LoomError: Nothing can be embedded or stored any more; what is written stays.
        """
        if options.key_only and options.staged:
            raise InvalidArgument.of("key_only", "cannot be staged")
        if options.collection:
            await self._require_in_database(options)
        if not options.dry_run:
            self._require_named(options)
        space = await self._texts.space()
        off = await self._off(options)
        scopes = await self._scopes(options, off)
        work = _Run(space, options, scopes, WriterHolds(self._model_calls, self._clock), off)
        with tagged(OP):
            if options.dry_run:
                await work.count()
                yield work.progress
                if options.delete_old:
                    await work.count_superseded()
            else:
                async with self._alone():
                    await work.count()
                    yield work.progress
                    async with (
                        self._lease() as lease,
                        self._texts.passing() as texts,
                        aclosing(work.rewrite(lease, texts)) as progresses,
                    ):
                        async for progress in progresses:
                            yield progress
        yield work.finished()

    async def _require_in_database(self, options: ReembedOptions) -> None:
        require_in_database_allowed(self._identifying)
        if options.staged:
            raise InvalidArgument.of("in_database", "cannot be staged")
        served = await self._texts.served()
        if served.fake or served.name.startswith("local"):
            raise InvalidArgument.of("in_database", f"needs a model of a provider, and {served.name} is served")
        if not await self._rewrites.embeds_itself():
            raise InvalidArgument.of("in_database", "needs a ClickHouse that has the function aiEmbed")

    def _require_named(self, options: ReembedOptions) -> None:
        if options.org and not options.namespace and self._model_calls.policy.names_agent:
            raise ModelCallUnattributed(
                "Calls to models name their agent here. Name the namespace beside the organisation, so that they are "
                "for the agent whose namespace it is.",
                detail={"org": options.org},
            )
        if options.org in self._model_calls.off():
            raise calls_off(options.org)

    async def _off(self, options: ReembedOptions) -> Collection[str]:
        """Returns the organisations whose texts are left as they are, because their calls are switched off."""
        off = set(self._model_calls.off())
        if options.collection:
            # No gate is before the database's own calls.
            scopes = await self._scopes(options, off)
            for org in sorted({scope.org for _, scope in scopes}):
                with for_org(org, OP):
                    try:
                        await self._model_calls.require()
                    except ModelCallsOff:
                        off.add(org)
        if off:
            logger.warning("organisations_left_out", extra={"count": len(off)})
        return off

    async def _scopes(self, options: ReembedOptions, off: Collection[str]) -> list[tuple[VectorTable, Scope]]:
        names = options.org, options.namespace
        return [(table, scope) for table in self.tables for scope in await table.scopes(*names, off)]

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Keeps other runs out, which are refused at once."""
        note = f"since {format_time(self._clock.now())}"
        async with self._leases.taken(RUN_LEASE, LEASE_S, renewed=True, note=note) as lease:
            if lease is None:
                holder = await self._leases.holder_of(RUN_LEASE) or "one that ends now"
                raise Conflict(
                    f"Another run is under way: {holder}. Wait for its end; one that was killed counts for up to "
                    f"{LEASE_S:g} s.",
                    detail={"holder": holder},
                )
            yield

    @asynccontextmanager
    async def _lease(self) -> AsyncIterator[Lease]:
        """Keeps the embedding worker out, which gives way after its turn."""
        try:
            async with self._leases.taken(LEASE, LEASE_S, wait_s=self._lease_wait_s, renewed=True) as lease:
                if lease is None:
                    holder = await self._leases.holder_of(LEASE) or "a process that ends now"
                    raise Conflict(
                        f"Stored texts are given their vectors by {holder}; run it again later.",
                        detail={"holder": holder},
                    )
                yield lease
        except LeaseLost as error:
            raise Conflict("Another process took this run over; run it again.") from error


class _Run:
    """One run over some namespaces of some tables."""

    def __init__(
        self,
        space: VectorSpace,
        options: ReembedOptions,
        scopes: Sequence[tuple[VectorTable, Scope]],
        holds: WriterHolds,
        off: Collection[str],
    ) -> None:
        self._space = space
        self._options = options
        self._parts = Parts.KEYS if options.key_only else Parts.ALL
        self._scopes = scopes
        self._holds = holds
        self._off = off
        self._failures: list[Failure] = []
        self._told = 0
        self.progress = Progress(space)

    async def count(self) -> None:
        """Counts what waits."""
        total = 0
        for table, scope in self._scopes:
            total += await table.waiting(scope, self._space, self._parts)
        self._note(total=total)

    async def count_superseded(self) -> None:
        """Counts what `delete_old` would remove now."""
        for table, scope in self._scopes:
            async for placed in table.superseded(scope, self._space):
                self._note(deleted=self.progress.deleted + len(placed))

    async def rewrite(self, lease: Lease, texts: Pass) -> AsyncGenerator[Progress, None]:
        """Does the work, namespace by namespace."""
        if self._options.collection:
            yield await self._in_database()
        for table, scope in self._scopes:
            self._note(table=table.name, scope=scope)
            if not self._options.collection:
                async with aclosing(self._rewrite_scope(table, scope, lease, texts)) as progresses:
                    async for progress in progresses:
                        yield progress
            if self._options.delete_old:
                async for placed in table.superseded(scope, self._space):
                    await lease.check()
                    await table.remove_superseded(scope, self._space, placed)
                    yield self._note(deleted=self.progress.deleted + len(placed))

    def finished(self) -> Progress:
        """Returns the last progress."""
        done = self.progress
        logger.info(
            "reembedded",
            extra={"model": self._space.model, "done": done.done, "skipped": done.skipped, "failed": done.failed},
        )
        return self._note(table="", scope=Scope("", ""), finished=True)

    async def _in_database(self) -> Progress:
        names = Scope(self._options.org, self._options.namespace)
        before = self.progress.total
        for table in {id(table): table for table, _ in self._scopes}.values():
            await table.embed_in_database(names, self._space, self._parts, self._options.collection, self._off)
        await self.count()
        left = self.progress.total
        return self._note(total=before, done=max(before - left, 0), skipped=left)

    async def _rewrite_scope(
        self, table: VectorTable, scope: Scope, lease: Lease, texts: Pass
    ) -> AsyncGenerator[Progress, None]:
        staged = self._options.staged
        # Those of a run that ended halfway would otherwise stay for ever.
        await table.discard_staged(scope, self._space, keep_width=staged and self._options.resume)
        size = self._options.batch_size
        async with aclosing(table.batches(scope, self._space, self._parts, size, staged=staged)) as batches:
            async for batch in batches:
                yield await self._rewrite_batch(table, batch, lease, texts)
        if staged:
            yield await self._publish(table, scope, lease)

    async def _rewrite_batch(
        self, table: VectorTable, batch: Sequence[WaitingText], lease: Lease, texts: Pass
    ) -> Progress:
        """Embeds a batch, a call for each whom one may be for; what a call bought is stored before the next."""
        free: list[WaitingText] = []
        for waiting in batch:
            reason = self._holds.reason(waiting)
            if reason is None:
                free.append(waiting)
            else:
                self._fail(table, waiting, reason)
        async for attribution, group in texts.groups(free, lambda waiting: waiting):
            await self._rewrite_group(table, attribution, group, lease, texts)
        return self._note()

    async def _rewrite_group(
        self, table: VectorTable, attribution: Attribution, group: Sequence[WaitingText], lease: Lease, texts: Pass
    ) -> None:
        found = await texts.embed(attribution, self._space, group)
        embedded: list[tuple[WaitingText, list[Chunk]]] = []
        for waiting, chunks in zip(group, found, strict=True):
            if not isinstance(chunks, LoomError):
                embedded.append((waiting, chunks))
                continue
            if isinstance(chunks, HOLDS):
                self._hold(waiting, chunks)
            self._fail(table, waiting, chunks)
        await lease.check()
        if embedded:
            scope = embedded[0][0].scope
            stored = await table.store(scope, self._space, embedded, staged=self._options.staged)
            done = self.progress
            self.progress = replace(done, done=done.done + stored, skipped=done.skipped + len(embedded) - stored)

    def _hold(self, waiting: WaitingText, error: LoomError) -> None:
        """Leaves what else the text's writer has for the next run, for as long as the hold lasts."""
        if self._holds.reason(waiting) is None:
            logger.warning("texts_held", extra={"org": waiting.scope.org, "reason": error.reason.value})
        self._holds.hold(waiting, error)

    async def _publish(self, table: VectorTable, scope: Scope, lease: Lease) -> Progress:
        staged = await table.staged(scope, self._space)
        if staged.faulty or staged.missing:
            logger.warning(
                "vectors_withheld",
                extra={"namespace": scope.namespace, "faulty": staged.faulty, "missing": staged.missing},
            )
            return self._note(withheld=self.progress.withheld + 1)
        await lease.check()
        await table.publish(scope, self._space)
        return self._note()

    def _fail(self, table: VectorTable, waiting: WaitingText, error: LoomError) -> None:
        self.progress = replace(self.progress, failed=self.progress.failed + 1)
        if self._told + len(self._failures) < _MOST_FAILURES:
            self._failures.append(Failure(table.name, waiting.scope, waiting.identity.key, error.reason.value))

    def _note(self, **changes: object) -> Progress:
        failures, self._failures = tuple(self._failures), []
        self._told += len(failures)
        self.progress = replace(self.progress, failures=failures, **changes)  # type: ignore[arg-type]  # its own fields
        return self.progress
