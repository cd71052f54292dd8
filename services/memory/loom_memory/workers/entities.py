"""Finds who and what memories name, as they are written, and forgets it as they are deleted."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock, MonotonicVersions
from loom_common.errors import LoomError
from loom_common.features import Feature
from loom_common.leases import Lease
from loom_common.model_calls.gate import ModelCallGate
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.entities.naming import BATCH, Naming
from loom_memory.app.passes import Passes, WorkerPass
from loom_memory.domain.entities import Entity, Mention, Merging, fold
from loom_memory.domain.memory import Identity
from loom_memory.store.entities import ChangedMemory, EntityRepository, EntityVector, Mentions
from loom_memory.store.worker_passes import WorkerPassRepository

logger = logging.getLogger(__name__)

_LOOK_S: Final = 15.0
_READ: Final = 200
# A namespace's turn; others wait for its end.
_READS_OF_A_TURN: Final = 20
# A version is drawn before it is stored, and processes draw their own: what is this new is looked at once more.
_SETTLED_AFTER_NS: Final = 60_000_000_000
_MOST_REWRITTEN: Final = 10_000


class EntityExtractor:
    """Reads each version of a memory once.

    What a memory names is noted last: an attempt that is killed before is made again, and finds the same entities, as
    their identifiers follow from their names.
    """

    feature = Feature.ENTITY_EXTRACTOR
    setting = "LOOM_ENTITY_EXTRACT_ENABLED"

    def __init__(
        self,
        entities: EntityRepository,
        cursors: WorkerPassRepository,
        naming: Naming,
        embedding: EmbeddingPort,
        passes: Passes,
        model_calls: ModelCallGate,
        clock: Clock,
        *,
        interval_s: float = _LOOK_S,
    ) -> None:
        self.interval_s = interval_s
        self._entities = entities
        self._cursors = cursors
        self._naming = naming
        self._embedding = embedding
        self._passes = passes
        self._model_calls = model_calls
        self._clock = clock
        self._versions = MonotonicVersions(clock)

    async def has_work(self) -> bool:
        """See `Worker.has_work`."""
        cursors = await self._cursors.cursors(self.feature.value)
        active = await self._entities.active(self._model_calls.off())
        return any(newest > cursors.get(scope, 0) for scope, newest in active.items())

    async def run_pass(self, lease: Lease) -> Mapping[str, int]:
        """See `Worker.run_pass`."""
        counts: Counter[str] = Counter()
        cursors = await self._cursors.cursors(self.feature.value)
        with_model = await self._naming.has_model()
        async with self._passes.passing() as passing:
            for scope, newest in (await self._entities.active(self._model_calls.off())).items():
                after = cursors.get(scope, 0)
                if newest > after:
                    turn = _Turn(self, scope, lease, passing, with_model=with_model)
                    counts.update(await turn.run(after, newest))
        return dict(counts)

    async def read(self, scope: Scope, after: int) -> list[ChangedMemory]:
        """Returns what was written behind a version."""
        return await self._entities.changed(scope, after, self._clock.now(), _READ)

    async def unread(self, scope: Scope, memories: Sequence[ChangedMemory]) -> list[ChangedMemory]:
        """Returns those whose version nobody noted yet."""
        noted = await self._entities.mentions(scope, [memory.identity for memory in memories])
        return [
            memory
            for memory in memories
            if memory.identity not in noted or noted[memory.identity].memory_version != memory.version
        ]

    async def move(self, scope: Scope, place: int) -> None:
        """Stores how far a namespace is read, as far as that is settled."""
        settled = min(place, self._clock.now_ns() - _SETTLED_AFTER_NS)
        await self._cursors.move(self.feature.value, scope, max(settled, 0), self._versions.next())

    async def names(self, texts: Sequence[str], *, with_model: bool) -> list[list[Mention]]:
        """Returns what texts name."""
        return await self._naming.names(texts, with_model=with_model)

    async def note(
        self,
        scope: Scope,
        user_id: str,
        found: Mapping[Identity, tuple[ChangedMemory, list[Mention]]],
        gone: Sequence[ChangedMemory],
        actor: str,
    ) -> int:
        """Stores what memories of one user name, and returns how many entities that changed."""
        now = self._clock.now()
        before = await self._entities.mentions(scope, [*found, *(memory.identity for memory in gone)])
        names = {fold(name) for _, mentions in found.values() for one in mentions for name in (one.name, *one.aliases)}
        known = await self._entities.by_names(scope, user_id, names) if names else []
        merging = Merging(known, now)
        notes = [
            Mentions(
                identity,
                memory.version,
                tuple(dict.fromkeys(merging.entity_of(mention, memory.at) for mention in mentions)),
            )
            for identity, (memory, mentions) in found.items()
        ]
        # Two may have turned out to be one while a later memory was read.
        notes = [replace(one, entity_ids=_followed(one.entity_ids, merging.merged)) for one in notes]
        notes += [Mentions(memory.identity, memory.version, (), now) for memory in gone]
        await self._rewrite(scope, user_id, merging.merged)
        changed = [merging.entities()[one] for one in sorted(merging.changed)]
        await self._put(scope, user_id, changed, actor)
        await self._entities.note(scope, {one: self._versions.next() for one in notes})
        touched = {one for mentions in before.values() for one in mentions.entity_ids}
        await self.recount(scope, user_id, touched | {one for note in notes for one in note.entity_ids})
        return len(changed)

    async def recount(self, scope: Scope, user_id: str, ids: Collection[str]) -> int:
        """Makes entities tell how many memories name them; one that none names is gone. Returns how many changed."""
        if not ids:
            return 0
        now, counts = self._clock.now(), await self._entities.counts(scope, user_id, ids)
        changed = []
        for entity in await self._entities.by_ids(scope, user_id, ids):
            count = counts.get(entity.id, 0)
            if entity.tombstoned_at is None and (count != entity.mention_count or not count):
                changed.append(replace(entity, mention_count=count, tombstoned_at=None if count else now))
        await self._entities.put(scope, user_id, [self._next(entity) for entity in changed])
        gone = [self._gone(user_id, entity) for entity in changed if entity.tombstoned_at is not None]
        await self._entities.put_vectors(scope, gone)
        return len(changed)

    async def _rewrite(self, scope: Scope, user_id: str, merged: Mapping[str, str]) -> None:
        """Notes of memories that name an entity that was merged name the other one."""
        if not merged:
            return
        naming = await self._entities.mentioning(scope, user_id, merged, _MOST_REWRITTEN)
        rewritten = [replace(one, entity_ids=_followed(one.entity_ids, merged)) for one in naming]
        await self._entities.note(scope, {one: self._versions.next() for one in rewritten})

    async def _put(self, scope: Scope, user_id: str, entities: Sequence[Entity], actor: str) -> None:
        await self._entities.put(scope, user_id, [self._next(entity) for entity in entities])
        live = [entity for entity in entities if entity.tombstoned_at is None]
        vectors = await self._vectors(user_id, live, actor)
        vectors += [self._gone(user_id, entity) for entity in entities if entity.tombstoned_at is not None]
        await self._entities.put_vectors(scope, vectors)

    async def _vectors(self, user_id: str, entities: Sequence[Entity], actor: str) -> list[EntityVector]:
        """Returns the vectors of entities; one that could not be embedded waits for the repair."""
        rows = [EntityVector(user_id, entity.id, entity.text, actor, self._versions.next()) for entity in entities]
        if not rows:
            return []
        try:
            served = await self._embedding.served_model()
            embedded = await self._embedding.embed_many([row.text for row in rows])
        except LoomError as error:
            logger.warning("entities_without_vectors", extra={"entities": len(rows), "reason": error.reason.value})
            return rows
        return [
            row
            if isinstance(chunks, LoomError) or not chunks
            else replace(row, model=served.name, vector=chunks[0].vector)
            for row, chunks in zip(rows, embedded, strict=True)
        ]

    def _gone(self, user_id: str, entity: Entity) -> EntityVector:
        return EntityVector(user_id, entity.id, "", "", self._versions.next(), tombstoned_at=self._clock.now())

    def _next(self, entity: Entity) -> Entity:
        return replace(entity, version=self._versions.next(after=entity.version))


class _Turn:
    """A namespace's part of a pass."""

    def __init__(
        self, worker: EntityExtractor, scope: Scope, lease: Lease, passing: WorkerPass, *, with_model: bool
    ) -> None:
        self._worker = worker
        self._scope = scope
        self._lease = lease
        self._passing = passing
        self._with_model = with_model
        self._counts: Counter[str] = Counter()

    async def run(self, after: int, newest: int) -> Mapping[str, int]:
        """Reads on from a version."""
        place = after
        for _ in range(_READS_OF_A_TURN):
            memories = await self._worker.read(self._scope, place)
            if not memories:
                place = max(place, newest)
                break
            for user_id, group in _by(await self._worker.unread(self._scope, memories), _user_of):
                await self._user(user_id, group)
            place = memories[-1].version
        await self._lease.check()
        await self._worker.move(self._scope, place)
        return self._counts

    async def _user(self, user_id: str, memories: Sequence[ChangedMemory]) -> None:
        gone = [memory for memory in memories if not memory.shown]
        # Of one writer: the calls are for whom the memory is by.
        for actor, group in _by([memory for memory in memories if memory.shown], lambda memory: memory.actor):
            for first in range(0, len(group), BATCH):
                await self._batch(user_id, actor, group[first : first + BATCH])
        if gone:
            await self._lease.check()
            await self._worker.note(self._scope, user_id, {}, gone, "")
            self._counts["deleted"] += len(gone)

    async def _batch(self, user_id: str, actor: str, memories: Sequence[ChangedMemory]) -> None:
        texts = [f"{memory.speaker}: {memory.value}" if memory.speaker else memory.value for memory in memories]
        with self._passing.acting(self._scope, actor, user_id):
            names = await self._worker.names(texts, with_model=self._with_model)
            found = {memory.identity: (memory, mentions) for memory, mentions in zip(memories, names, strict=True)}
            await self._lease.check()
            self._counts["entities"] += await self._worker.note(self._scope, user_id, found, (), actor)
        self._counts["memories"] += len(memories)


def _user_of(memory: ChangedMemory) -> str:
    return memory.identity.user_id


def _by(
    memories: Iterable[ChangedMemory], key: Callable[[ChangedMemory], str]
) -> Iterator[tuple[str, list[ChangedMemory]]]:
    groups: dict[str, list[ChangedMemory]] = {}
    for memory in memories:
        groups.setdefault(key(memory), []).append(memory)
    yield from groups.items()


def _followed(ids: Iterable[str], merged: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(merged.get(one, one) for one in ids))
