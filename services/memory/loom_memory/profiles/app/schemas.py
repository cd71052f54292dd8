"""Reading and writing the schema of a namespace's profiles."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims, claim_name
from loom_common.errors import Conflict, InvalidArgument
from loom_common.local_locks import KeyedLocks
from loom_memory.domain.memory import to_milliseconds
from loom_memory.profiles.domain.schemas import ProfileField, ProfileSchema, checked_fields
from loom_memory.profiles.store.schemas import SchemaRepository


class ProfileSchemas:
    """Keeps the schemas.

    Args:
        claims: Puts writers of several processes in order; None where this process alone writes.
    """

    def __init__(self, schemas: SchemaRepository, clock: Clock, claims: Claims | None) -> None:
        self._schemas = schemas
        self._clock = clock
        self._claims = claims
        self._locks = KeyedLocks()

    async def get(self, scope: Scope) -> ProfileSchema | None:
        """Returns the current schema; None where there is none."""
        newest = await self._schemas.newest(scope)
        return newest if newest is not None and newest.fields else None

    async def read(self, scope: Scope) -> tuple[ProfileSchema | None, int]:
        """Returns the current schema, and the number of the newest version, a removal counted."""
        newest = await self._schemas.newest(scope)
        if newest is None:
            return None, 0
        return newest if newest.fields else None, newest.version

    async def set(
        self, scope: Scope, fields: Sequence[ProfileField], actor: str, *, is_closed: bool, expected: int | None
    ) -> tuple[int, bool]:
        """Writes the schema; no fields remove it. Returns the version that is current then, and whether it is new.

        Sections that are there stay as they are; the schema holds for what is written next.

        Raises:
            InvalidArgument: The fields are no schema.
            Conflict: `expected` is not the current version.
        """
        try:
            kept = checked_fields(fields)
        except ValueError as error:
            raise InvalidArgument.of("fields", str(error)) from error
        if any("\x00" in text for one in kept for text in (one.description, *one.choices)):
            raise InvalidArgument.of("fields", "must not hold NUL characters")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._locks.one(scope))
            hold = None
            if self._claims is not None:
                name = claim_name("profile_schema", scope.org, scope.namespace)
                hold = await stack.enter_async_context(self._claims.hold(name))
            newest = await self._schemas.newest(scope)
            current = newest.version if newest is not None else 0
            if expected is not None and expected != current:
                raise Conflict("The schema is at another version; read it again.", detail={"current_version": current})
            held = ((), False) if newest is None else (newest.fields, newest.is_closed)
            if (kept, is_closed and bool(kept)) == held:
                return current, False
            now = to_milliseconds(self._clock.now())
            version = self._clock.now_ns() if hold is None else hold.version_after(self._clock.now_ns())
            made = ProfileSchema(scope, kept, is_closed and bool(kept), current + 1, actor, now)
            await self._schemas.insert(made, version)
            if hold is not None:
                await hold.confirm()
            return current + 1, True
