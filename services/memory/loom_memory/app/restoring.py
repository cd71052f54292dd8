"""Bringing back a deleted memory, or making an older version the current one."""

from dataclasses import dataclass, replace
from datetime import datetime

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import InvalidArgument, NotFound
from loom_memory.app.drafts import Draft, Written
from loom_memory.app.write import MemoryWriter
from loom_memory.domain.memory import Identity, Memory
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.versions import VersionRepository


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of it, and the version whose content it is."""

    written: Written
    restored_version: int


class MemoryRestorer:
    """Answers `memory.restore`."""

    def __init__(
        self, memories: MemoryRepository, versions: VersionRepository, writer: MemoryWriter, *, clock: Clock
    ) -> None:
        self._memories = memories
        self._versions = versions
        self._writer = writer
        self._clock = clock

    async def restore(
        self,
        scope: Scope,
        identity: Identity,
        actor: str,
        *,
        version: int | None = None,
        expected_version: int | None = None,
    ) -> Restored:
        """Stores an older version's content as a new version, gates of its words included.

        Args:
            scope: Namespace of the memory.
            identity: The memory.
            actor: Who restores it.
            version: Revision to restore; None for the last before the deletion.
            expected_version: Revision that it must have now, 0 for none; None = any.

        Raises:
            NotFound: No such version is there any more.
            InvalidArgument: No version is named, and the memory is not deleted.
            Conflict: `expected_version` differs.
        """
        now = self._clock.now()
        current = (await self._memories.current(scope, [identity])).get(identity)
        if current is None:
            raise NotFound("There is no such memory.", detail={"key": identity.key})
        if version is None and current.is_visible(now):
            raise InvalidArgument.of("version", "is needed: the memory is there; `memory.history` lists its versions")
        old = await self._versions.revision(current, version)
        if old is None:
            raise NotFound("That version is not there any more.", detail={"key": identity.key})
        written = await self._writer.set_one(scope, _draft(old, now, expected_version), actor)
        if written.is_refused:
            raise InvalidArgument.of("version", written.message)
        return Restored(written, old.revision)


def _draft(old: Memory, now: datetime, expected_version: int | None) -> Draft:
    content = old.content
    if content.expires_at is not None and content.expires_at <= now:
        # What has expired is asked for again.
        content = replace(content, expires_at=None)
    return Draft(old.identity, content, expected_version, stated=old.stated, verbatim=True)
