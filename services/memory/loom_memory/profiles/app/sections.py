"""Reading and writing the sections of profiles."""

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims, Hold, claim_name
from loom_common.errors import Conflict, InvalidArgument
from loom_common.local_locks import KeyedLocks
from loom_memory.app.item_vectors import ItemVectors
from loom_memory.app.owned_items import readable_users
from loom_memory.domain.memory import Identity, to_milliseconds
from loom_memory.profiles.app.schemas import ProfileSchemas
from loom_memory.profiles.domain.sections import (
    MAX_SECTIONS,
    MAX_VALUE_BYTES,
    PLANE,
    Origin,
    Owner,
    ProfileSection,
    fold_value,
    label_of,
    section_id,
)
from loom_memory.profiles.store.sections import SectionRepository
from loom_memory.store.item_vectors import ItemVector

_OWNERS_OF_ONE: Final = 4
"""Owners whose sections one reader sees: the namespace, the user, the agent, and the agent for the user."""


@dataclass(frozen=True, slots=True)
class Writing:
    """What is written of a section.

    Attributes:
        expected: Version that it replaces, 0 for none; None for whichever is there.
    """

    owner: Owner
    label: str
    value: str
    actor: str
    expected: int | None = None
    origin: Origin = Origin.SET
    evidence: tuple[Identity, ...] = ()


class ProfileSections:
    """Keeps the sections of profiles.

    A section's vector is stored before the version that it is of: a write that is killed between leaves what was there,
    and the next one stores both.

    Args:
        claims: Puts writers of several processes in order; None where this process alone writes.
    """

    def __init__(
        self,
        sections: SectionRepository,
        schemas: ProfileSchemas,
        vectors: ItemVectors,
        clock: Clock,
        claims: Claims | None,
    ) -> None:
        self._sections = sections
        self._schemas = schemas
        self._vectors = vectors
        self._clock = clock
        self._claims = claims
        self._locks = KeyedLocks()

    async def stable(self, scope: Scope, user_id: str = "", agent: str = "") -> tuple[ProfileSection, ...]:
        """Returns the sections that hold for a user and an agent: the namespace's, theirs, in the same order always.

        Only those that the running call may read.
        """
        users = readable_users({"", user_id})
        return await self._current(scope, users if users is not None else {"", user_id}, {"", agent})

    async def of_owner(self, scope: Scope, owner: Owner) -> tuple[ProfileSection, ...]:
        """Returns the sections of one owner alone, by label; whoever calls has looked whether they may be read."""
        return await self._current(scope, {owner.user_id}, {owner.agent})

    async def history(self, scope: Scope, owner: Owner, label: str, before: int, limit: int) -> list[ProfileSection]:
        """Returns versions of a section below a number, the newest first, removals among them."""
        return await self._sections.versions(scope, section_id(owner, _label(label)), before, limit)

    async def set(self, scope: Scope, writing: Writing) -> tuple[ProfileSection | None, bool]:
        """Writes a section, or removes it with an empty value. Returns its newest version, and whether it is new.

        Raises:
            InvalidArgument: The label or the value is none, the schema refuses it, or the owner has too many sections.
            Conflict: `expected` is not the current version.
        """
        label = _label(writing.label)
        value = _checked(writing.value)
        schema = await self._schemas.get(scope)
        field = None if schema is None else schema.field_of(label)
        if value and schema is not None and schema.is_closed and field is None:
            raise InvalidArgument.of("label", "is none that the namespace's profile schema has")
        if value and field is not None:
            try:
                label, value = field.label, field.value_of(value)
            except ValueError as error:
                raise InvalidArgument.of("value", str(error)) from error
        async with self._alone(scope, writing.owner) as hold:
            return await self._write(scope, writing, label, value, hold)

    async def _write(
        self, scope: Scope, writing: Writing, label: str, value: str, hold: Hold | None
    ) -> tuple[ProfileSection | None, bool]:
        newest = await self._sections.newest(scope, section_id(writing.owner, label))
        current = 0 if newest is None else newest.version
        if writing.expected is not None and writing.expected != current:
            raise Conflict("The section is at another version; read it again.", detail={"current_version": current})
        live = newest if newest is not None and not newest.is_removed else None
        if writing.origin is Origin.FOLD and live is not None and live.origin is Origin.SET:
            return live, False  # what a caller wrote is never taken over by what memories say
        if value == ("" if live is None else live.value) and (live is None or live.origin is writing.origin):
            return newest, False
        if live is None and value and len(await self.of_owner(scope, writing.owner)) >= MAX_SECTIONS:
            raise InvalidArgument.of("label", f"would be more than {MAX_SECTIONS} sections; remove one first")
        now = to_milliseconds(self._clock.now())
        section = ProfileSection(
            label,
            value,
            writing.owner.user_id,
            writing.owner.agent,
            now,
            current + 1,
            writing.origin,
            writing.evidence,
            writing.actor,
            is_removed=not value,
        )
        vector = ItemVector(
            PLANE, section.id, section.user_id, section.agent, section.text, section.actor, now, 0,
            tombstoned_at=now if section.is_removed else None,
        )  # fmt: skip
        if not section.is_removed:
            await self._vectors.write(scope, [vector])
        # Above a stale holder's write of the same revision.
        version = self._clock.now_ns() if hold is None else hold.version_after(self._clock.now_ns())
        await self._sections.insert(scope, section, version)
        if section.is_removed:
            await self._vectors.write(scope, [replace(vector, text="")])
        if hold is not None:
            await hold.confirm()
        return section, True

    async def fold(self, scope: Scope, writing: Writing) -> bool:
        """Writes what memories say, unless the owner's profile says it already. Returns whether it is new.

        A value that stands under another label is the same thing said again.

        Raises:
            InvalidArgument: As for `set`.
        """
        said = fold_value(writing.value)
        label = _label(writing.label)
        own = section_id(writing.owner, label)
        for section in await self.of_owner(scope, writing.owner):
            if fold_value(section.value) == said:
                return False
            if section.id == own and section.origin is Origin.SET:
                return False
        _, is_new = await self.set(scope, writing)
        return is_new

    async def _current(
        self, scope: Scope, users: Collection[str], agents: Collection[str]
    ) -> tuple[ProfileSection, ...]:
        if not users:
            return ()
        return tuple(await self._sections.current(scope, users, agents, MAX_SECTIONS * _OWNERS_OF_ONE))

    @asynccontextmanager
    async def _alone(self, scope: Scope, owner: Owner) -> AsyncIterator[Hold | None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._locks.one((scope, owner)))
            if self._claims is None:
                yield None
            else:
                name = claim_name("profile", scope.org, scope.namespace, owner.user_id, owner.agent)
                yield await stack.enter_async_context(self._claims.hold(name))


def _label(text: str) -> str:
    try:
        return label_of(text)
    except ValueError as error:
        raise InvalidArgument.of("label", str(error)) from error


def _checked(value: str) -> str:
    if "\x00" in value:
        raise InvalidArgument.of("value", "must not hold NUL characters")
    value = value.strip()
    if len(value.encode()) > MAX_VALUE_BYTES:
        raise InvalidArgument.of("value", f"must be at most {MAX_VALUE_BYTES} bytes of UTF-8")
    return value
