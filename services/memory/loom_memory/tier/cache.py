"""Which namespaces are held, within a bound of bytes, and what happens to them when something is written."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import cachetools

from loom_common.call import Call, Scope, current
from loom_common.clickhouse import tagged
from loom_common.clock import Clock
from loom_common.errors import LoomError
from loom_common.telemetry import add
from loom_memory.domain.vectors import VectorSpace
from loom_memory.tier import events
from loom_memory.tier.currency import OVERLAP_NS, Currency
from loom_memory.tier.loading import DoesNotFit, Loaded, estimated_bytes, read_shard
from loom_memory.tier.shard import Shard, TooManyEarly
from loom_memory.tier.source import TierSource

logger = logging.getLogger(__name__)

NAME: Final = "memory.tier"
_LOOKUPS: Final = "loom.cache.lookups"
_BYTES: Final = "loom.memory.tier.bytes"
_NAMESPACES: Final = "loom.memory.tier.namespaces"

# Source: chosen. Two searches further apart than this are no sign of a third.
_SECOND_WITHIN_S: Final = 900.0
# A statement that was given up may still take effect within its own bound of a minute.
_DOUBTED_S: Final = 75.0
_TOO_LARGE_S: Final = 600.0
_MOST_WAITING: Final = 256
_MOST_KNOWN: Final = 8_192
_MOST_EVENTS: Final = 100_000
_SYNCED_S: Final = 60.0


@dataclass(slots=True)
class _Held:
    shard: Shard
    currency: Currency | None
    used: float
    size_bytes: int
    merge: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Loading:
    """A namespace that is being read. What is stored meanwhile is taken in afterwards."""

    scope: Scope
    stored: list[tuple[str, Sequence[Sequence[Any]]]] = field(default_factory=list)
    count: int = 0
    is_void: bool = False


@dataclass(slots=True)
class _Searched:
    request_id: str
    at: float


@dataclass(frozen=True, slots=True)
class TierFacts:
    """What the tier holds: namespaces, their rows, and the memory that they take."""

    namespaces: int
    rows: int
    size_bytes: int


class Tier:
    """Holds namespaces that are searched, the least recently used leaving first.

    Where this process alone writes the database, what it stores is taken in at once; else each search looks whether
    others wrote (`currency`).

    Attributes:
        is_exclusive: Whether this process alone writes the database.
        idle: Set once everything that was wanted is loaded or left.
    """

    def __init__(self, rows: TierSource, clock: Clock, *, max_bytes: int, exclusive: bool) -> None:
        self._rows = rows
        self._clock = clock
        self._max_bytes = max_bytes
        self.is_exclusive = exclusive
        self._held: OrderedDict[Scope, _Held] = OrderedDict()
        self._loading: _Loading | None = None
        self._wanted: OrderedDict[Scope, tuple[VectorSpace, float]] = OrderedDict()
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()
        self._searched: cachetools.LRUCache[Scope, _Searched] = cachetools.LRUCache(_MOST_KNOWN)
        self._barred: dict[Scope, float] = {}
        self._all_barred = float("-inf")
        self._looks: cachetools.TTLCache[tuple[int, Scope, int], tuple[Call, asyncio.Task[bool]]] = cachetools.TTLCache(
            _MOST_KNOWN, _SYNCED_S, clock.monotonic_s
        )
        self._stored: cachetools.LRUCache[Scope, int] = cachetools.LRUCache(_MOST_KNOWN)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_on(self) -> bool:
        """Whether it holds anything at all."""
        return self._max_bytes > 0

    @property
    def size_bytes(self) -> int:
        """Memory that it takes, about."""
        return sum(held.size_bytes for held in self._held.values())

    def facts(self) -> TierFacts:
        """Returns what it holds."""
        return TierFacts(len(self._held), sum(held.shard.alive for held in self._held.values()), self.size_bytes)

    async def shard(self, scope: Scope, space: VectorSpace | None = None) -> Shard | None:
        """Returns a namespace with every row that was stored before the running request asked first, or None.

        Args:
            scope: The namespace.
            space: Space of the query's vector; a search by words alone has none.

        Raises:
            LoomError: The database did not say whether it is current.
        """
        held = self._held.get(scope)
        if held is None:
            return None
        if space is not None and held.shard.space != space:
            self._drop(scope)
            return None
        held.used = self._clock.monotonic_s()
        self._held.move_to_end(scope)
        if held.currency is not None and not await self._is_current(scope, held.currency):
            if held.currency.is_lost and self._held.get(scope) is held:
                self._drop(scope)
                self._want(scope, held.shard.space, held.used)
            return None
        return held.shard

    def searched(self, scope: Scope, space: VectorSpace, *, is_held: bool) -> None:
        """Notes a search by vectors; the second of a namespace that is not held makes it one to load."""
        if not self.is_on:
            return
        request_id, now = current().request_id, self._clock.monotonic_s()
        known = self._searched.get(scope)
        if known is not None and request_id and known.request_id == request_id:
            return
        self._searched[scope] = _Searched(request_id, now)
        add(_LOOKUPS, cache=NAME, outcome="hit" if is_held else "miss")
        if not is_held and known is not None and now - known.at <= _SECOND_WITHIN_S:
            self._want(scope, space, known.at)

    def stored(self, scope: Scope, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Takes in what this process stored, unless every search looks for it anyway."""
        if not self.is_exclusive:
            # A request that searches, writes and searches again finds what it wrote.
            self._stored[scope] = self._stored.get(scope, 0) + 1
            return
        loading = self._loading
        if loading is not None and loading.scope == scope:
            loading.stored.append((table, rows))
            loading.count += len(rows)
            loading.is_void |= loading.count > _MOST_EVENTS
        held = self._held.get(scope)
        if held is None:
            return
        try:
            events.apply(held.shard, table, rows)
        except TooManyEarly:
            self._drop(scope)
            return
        self._kept_up(scope, held)

    def changed(self, scope: Scope | None) -> None:
        """Drops a namespace that was changed in a way that only reading it shows; None is all of them."""
        if self._loading is not None and scope in (None, self._loading.scope):
            self._loading.is_void = True
        for each in [scope] if scope is not None else list(self._held):
            self._drop(each)

    def doubt(self, scope: Scope | None) -> None:
        """Drops a namespace of which a statement may still change rows, and leaves it to the database for a while."""
        self.changed(scope)
        until = self._clock.monotonic_s() + _DOUBTED_S
        if scope is None:
            self._all_barred = until
        else:
            self._bar(scope, until)

    async def run(self) -> None:
        """Loads what is wanted, one namespace at a time, until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            self.idle.clear()
            while self._wanted:
                scope, (space, before) = self._wanted.popitem(last=False)
                with tagged(NAME):
                    try:
                        await self.load(scope, space, before)
                    except LoomError:
                        logger.warning("namespace_not_loaded", exc_info=True, extra={"namespace": scope.namespace})
            self.idle.set()

    async def load(self, scope: Scope, space: VectorSpace, before: float = float("inf")) -> bool:
        """Reads a namespace and holds it, if there is room beside those that were used after `before`.

        Raises:
            LoomError: The database did not answer.
        """
        if not self.is_on or self._is_barred(scope):
            return False
        began, began_ns = self._clock.monotonic_s(), self._clock.now_ns()
        self._loading = loading = _Loading(scope)
        try:
            estimate = estimated_bytes(await self._rows.size(scope, space), space)
            if estimate > self._max_bytes:
                raise DoesNotFit
            if not self._make_room(scope, estimate, before):
                return False
            loaded = await read_shard(self._rows, scope, space, lambda: self._room_beside(scope), began_ns - OVERLAP_NS)
            shard = loaded.shard
            while loading.stored and not loading.is_void:
                events.apply(shard, *loading.stored.pop(0))
                if loading.stored:
                    await asyncio.sleep(0)
        except (DoesNotFit, TooManyEarly) as error:
            logger.info("namespace_too_large", extra={"namespace": scope.namespace, "reason": type(error).__name__})
            self._bar(scope, self._clock.monotonic_s() + _TOO_LARGE_S)
            return False
        finally:
            self._loading = None
        if loading.is_void or self._is_barred(scope):
            return False
        shard.forget_early(began_ns - 10 * OVERLAP_NS)
        self._hold(scope, loaded)
        took_s = self._clock.monotonic_s() - began
        logger.info(
            "namespace_loaded",
            extra={"namespace": scope.namespace, "rows": shard.alive, "bytes": shard.size_bytes, "took_s": took_s},
        )
        return scope in self._held

    def _hold(self, scope: Scope, loaded: Loaded) -> None:
        self._drop(scope)
        currency = None
        if not self.is_exclusive:
            currency = Currency(
                self._rows, scope, loaded.shard, self._clock, settled=loaded.settled,
                vectors=loaded.vectors, vector_total=loaded.vector_total, seen=set(loaded.recent),
            )  # fmt: skip
        held = self._held[scope] = _Held(loaded.shard, currency, self._clock.monotonic_s(), 0)
        add(_NAMESPACES, 1)
        self._weigh(scope, held)

    def _kept_up(self, scope: Scope, held: _Held) -> None:
        """Looks after a shard that was added to."""
        if held.shard.postings.wants_merge and held.merge is None:
            held.merge = asyncio.create_task(self._merge(scope, held))
            self._tasks.add(held.merge)
            held.merge.add_done_callback(self._tasks.discard)
        if held.shard.is_worn:
            self._want(scope, held.shard.space, held.used)
        self._weigh(scope, held)

    async def _merge(self, scope: Scope, held: _Held) -> None:
        merged, tail = held.shard.postings.merge_begun()
        joined = await asyncio.to_thread(merged.with_rows, tail)
        held.shard.postings.merge_ended(joined, len(tail))
        held.merge = None
        if self._held.get(scope) is held:
            self._weigh(scope, held)

    def _weigh(self, scope: Scope, held: _Held) -> None:
        """Counts a shard anew, and lets others go, or itself, where the bound is passed."""
        size_bytes = held.shard.size_bytes
        add(_BYTES, size_bytes - held.size_bytes)
        held.size_bytes = size_bytes
        while self.size_bytes > self._max_bytes:
            first = next(iter(self._held))
            self._drop(first)
            if first == scope:
                return

    def _make_room(self, scope: Scope, size_bytes: int, before: float) -> bool:
        """Lets namespaces go that were not used since `before`, until `size_bytes` fit; says whether they do."""
        spare = [other for other, held in self._held.items() if other != scope and held.used < before]
        while self._room_beside(scope) < size_bytes:
            if not spare:
                return False
            self._drop(spare.pop(0))
        # A namespace that is read anew goes on answering where both fit.
        if scope in self._held and self._max_bytes - self.size_bytes < size_bytes:
            self._drop(scope)
        return True

    def _room_beside(self, scope: Scope) -> int:
        """Returns what a namespace may take while it is read."""
        return self._max_bytes - sum(held.size_bytes for other, held in self._held.items() if other != scope)

    def _want(self, scope: Scope, space: VectorSpace, before: float) -> None:
        if len(self._wanted) < _MOST_WAITING and not self._is_barred(scope):
            self._wanted[scope] = space, before
            self._wake.set()

    def _drop(self, scope: Scope) -> None:
        held = self._held.pop(scope, None)
        if held is not None:
            add(_BYTES, -held.size_bytes)
            add(_NAMESPACES, -1)

    def _bar(self, scope: Scope, until: float) -> None:
        now = self._clock.monotonic_s()
        self._barred = {each: end for each, end in self._barred.items() if end > now}
        self._barred[scope] = max(until, self._barred.get(scope, until))

    def _is_barred(self, scope: Scope) -> bool:
        return max(self._barred.get(scope, float("-inf")), self._all_barred) > self._clock.monotonic_s()

    async def _is_current(self, scope: Scope, currency: Currency) -> bool:
        """Says whether a shard is current; the calls of one request look once, together."""
        call = current()
        if not call.request_id:
            return await currency.is_current()
        # By the call itself: its identifier is the caller's own, who may send it twice. Kept with the look, so that no
        # other call gets its address meanwhile.
        key = id(call), scope, self._stored.get(scope, 0)
        known = self._looks.get(key)
        if known is None:
            known = self._looks[key] = call, asyncio.create_task(currency.is_current())
        return await asyncio.shield(known[1])
