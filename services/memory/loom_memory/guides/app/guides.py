"""Reading and writing the guide of a namespace."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims, claim_name
from loom_common.errors import Conflict, InvalidArgument
from loom_common.local_locks import KeyedLocks
from loom_memory.domain.memory import to_milliseconds
from loom_memory.guides.domain.guide import Guide
from loom_memory.guides.store.guides import GuideRepository


@dataclass(frozen=True, slots=True)
class GuideVersion:
    """What is read of a guide; `current` is the number of the newest version, a removal counted."""

    guide: Guide | None
    current: int


class Guides:
    """Keeps the guides of namespaces.

    Args:
        claims: Puts writers of several processes in order; None where this process alone writes.
    """

    def __init__(self, guides: GuideRepository, clock: Clock, claims: Claims | None) -> None:
        self._guides = guides
        self._clock = clock
        self._claims = claims
        self._locks = KeyedLocks()

    async def get(self, scope: Scope) -> Guide | None:
        """Returns the current guide; None where there is none."""
        newest = await self._guides.newest(scope)
        return None if newest is None or newest.is_removed else newest

    async def read(self, scope: Scope, revision: int | None = None) -> GuideVersion:
        """Returns one version, the current one where none is named."""
        newest = await self._guides.newest(scope)
        if newest is None:
            return GuideVersion(None, 0)
        found = newest
        if revision is not None and revision != newest.revision:
            older = await self._guides.version(scope, revision) if revision < newest.revision else None
            if older is None:
                return GuideVersion(None, newest.revision)
            found = older
        return GuideVersion(None if found.is_removed else found, newest.revision)

    async def set(self, scope: Scope, text: str, actor: str, expected: int | None = None) -> tuple[int, bool]:
        """Writes the guide; an empty text removes it. Returns the version that is current then, and whether it is new.

        Raises:
            InvalidArgument: The text holds a NUL character.
            Conflict: `expected` is not the current version.
        """
        if "\x00" in text:
            raise InvalidArgument.of("text", "must not hold NUL characters")
        text = text.strip()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._locks.one(scope))
            hold = None
            if self._claims is not None:
                name = claim_name("namespace_guide", scope.org, scope.namespace)
                hold = await stack.enter_async_context(self._claims.hold(name))
            newest = await self._guides.newest(scope)
            current = newest.revision if newest is not None else 0
            if expected is not None and expected != current:
                raise Conflict("The guide is at another version; read it again.", detail={"current_version": current})
            if text == (newest.text if newest is not None else ""):
                return current, False
            now = to_milliseconds(self._clock.now())
            # Above a stale holder's write of the same revision.
            version = self._clock.now_ns() if hold is None else hold.version_after(self._clock.now_ns())
            await self._guides.insert(Guide(scope, text, current + 1, actor, now), version)
            if hold is not None:
                await hold.confirm()
            return current + 1, True
