"""Keeping procedures and learnings, and what came of using them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from loom_common.call import Scope
from loom_common.clock import Clock, MonotonicVersions
from loom_common.conditional_writes import Claims, Hold, claim_name
from loom_common.errors import Conflict, InvalidArgument, NotFound
from loom_common.ids import new_id
from loom_common.local_locks import KeyedLocks
from loom_memory.app.item_vectors import ItemVectors
from loom_memory.app.owned_items import readable_users
from loom_memory.domain.memory import to_milliseconds
from loom_memory.procedures.domain.procedures import PLANE, Kind, Procedure, procedure_id
from loom_memory.procedures.store.procedures import ProcedureRepository
from loom_memory.store.item_vectors import ItemVector


@dataclass(frozen=True, slots=True)
class Saving:
    """What is stored.

    Attributes:
        id: What names it; empty for the one that the situation and the owner make.
        expected: Version that it replaces, 0 for none; None for whichever is there.
    """

    situation: str
    body: str
    actor: str
    kind: Kind = Kind.PROCEDURE
    user_id: str = ""
    agent: str = ""
    id: str = ""
    expected: int | None = None


class Procedures:
    """Keeps procedures.

    A situation's vector is stored before the procedure: a write that is killed between leaves what was there.

    Args:
        claims: Puts writers of several processes in order; None where this process alone writes.
    """

    def __init__(self, rows: ProcedureRepository, vectors: ItemVectors, clock: Clock, claims: Claims | None) -> None:
        self._rows = rows
        self._vectors = vectors
        self._clock = clock
        self._claims = claims
        self._locks = KeyedLocks()
        self._versions = MonotonicVersions(clock)

    async def save(self, scope: Scope, saving: Saving) -> tuple[Procedure, bool]:
        """Stores a procedure. Returns it as it is now, and whether this changed it.

        Raises:
            InvalidArgument: The situation or the body is empty or holds NUL characters, or the name is another user's.
            Conflict: `expected` is not the current version.
        """
        situation, body = _text("situation", saving.situation), _text("body", saving.body)
        name = saving.id or procedure_id(situation, saving.user_id, saving.agent, saving.kind)
        if "\x00" in name:
            raise InvalidArgument.of("procedure_id", "must not hold NUL characters")
        async with self._alone(scope, name) as hold:
            newest = await self._rows.newest(scope, name)
            self._check(newest, saving)
            now = to_milliseconds(self._clock.now())
            live = newest if newest is not None and not newest.is_removed else None
            made = Procedure(
                name, saving.kind, situation, body, saving.user_id, saving.agent,
                1 if newest is None else newest.version + 1, saving.actor, live.created_at if live else now, now,
                row_version=newest.row_version if newest is not None else 0,
            )  # fmt: skip
            if live is not None and _said(live) == _said(made):
                return await self._counted_one(scope, live), False
            await self._vectors.write(scope, [_vector(made)])
            await self._store(scope, made, hold)
        return await self._counted_one(scope, made), True

    async def get(self, scope: Scope, name: str) -> Procedure | None:
        """Returns a procedure that the running call may read; None where there is none."""
        newest = await self._rows.newest(scope, name)
        if newest is None or newest.is_removed or not _is_readable(newest):
            return None
        return await self._counted_one(scope, newest)

    async def page(self, scope: Scope, behind: str, kind: str, limit: int) -> list[Procedure]:
        """Returns procedures that the running call may read behind an identifier, in the order of these."""
        users = readable_users(None)
        if users is not None and not users:
            return []
        return await self.counted(scope, await self._rows.page(scope, behind, users, kind, limit))

    async def delete(self, scope: Scope, name: str, actor: str) -> bool:
        """Deletes a procedure, and says whether there was one that the running call may write."""
        async with self._alone(scope, name) as hold:
            newest = await self._rows.newest(scope, name)
            if newest is None or newest.is_removed or not _is_readable(newest):
                return False
            now = to_milliseconds(self._clock.now())
            gone = replace(
                newest, situation="", body="", version=newest.version + 1, actor=actor, updated_at=now, is_removed=True
            )
            await self._store(scope, gone, hold)
            await self._vectors.write(scope, [_vector(gone)])
        return True

    async def record(self, scope: Scope, name: str, outcome_id: str, actor: str, *, succeeded: bool) -> tuple[int, int]:
        """Records what came of one use. Returns uses and successes then.

        Raises:
            NotFound: There is no such procedure that the running call may read.
        """
        if "\x00" in outcome_id:
            raise InvalidArgument.of("outcome_id", "must not hold NUL characters")
        found = await self.get(scope, name)
        if found is None:
            raise NotFound("There is no such procedure.")
        now = to_milliseconds(self._clock.now())
        version = self._versions.next()
        await self._rows.record(scope, name, outcome_id or new_id(), actor, now, version, ok=succeeded)
        return (await self._rows.counts(scope, [found])).get(name, (0, 0))

    async def counted(self, scope: Scope, found: Sequence[Procedure]) -> list[Procedure]:
        """Returns procedures with how often they were used."""
        counts = await self._rows.counts(scope, found)
        return [
            replace(one, uses=counts.get(one.id, (0, 0))[0], successes=counts.get(one.id, (0, 0))[1]) for one in found
        ]

    async def _counted_one(self, scope: Scope, one: Procedure) -> Procedure:
        return (await self.counted(scope, [one]))[0]

    def _check(self, newest: Procedure | None, saving: Saving) -> None:
        if newest is not None and not newest.is_removed and newest.user_id != saving.user_id:
            raise InvalidArgument.of("procedure_id", "names a procedure of another user")
        current = 0 if newest is None else newest.version
        if saving.expected is not None and saving.expected != current:
            raise Conflict("The procedure is at another version; read it again.", detail={"current_version": current})

    async def _store(self, scope: Scope, made: Procedure, hold: Hold | None) -> None:
        number = self._versions.next(after=made.row_version)
        version = number if hold is None else hold.version_after(number)
        await self._rows.insert(scope, made, version)
        if hold is not None:
            await hold.confirm()

    @asynccontextmanager
    async def _alone(self, scope: Scope, name: str) -> AsyncIterator[Hold | None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._locks.one((scope, name)))
            if self._claims is None:
                yield None
            else:
                claim = claim_name("procedure", scope.org, scope.namespace, name)
                yield await stack.enter_async_context(self._claims.hold(claim))


def _is_readable(procedure: Procedure) -> bool:
    users = readable_users(None)
    return users is None or procedure.user_id in users


def _said(one: Procedure) -> tuple[str, ...]:
    return one.kind.value, one.situation, one.body, one.user_id, one.agent


def _vector(one: Procedure) -> ItemVector:
    return ItemVector(
        PLANE, one.id, one.user_id, one.agent, one.situation, one.actor, one.updated_at, 0,
        tombstoned_at=one.updated_at if one.is_removed else None,
    )  # fmt: skip


def _text(field: str, text: str) -> str:
    if "\x00" in text:
        raise InvalidArgument.of(field, "must not hold NUL characters")
    text = text.strip()
    if not text:
        raise InvalidArgument.of(field, "is empty")
    return text
