"""Listing conflicts and settling them, for callers and for the resolver alike."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from pydantic import JsonValue

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import Conflict, InvalidArgument, NotFound
from loom_common.page_tokens import decode_page_token, encode_page_token
from loom_memory.app.drafts import Draft
from loom_memory.app.validity import Validity, until
from loom_memory.app.write import MemoryWriter
from loom_memory.app.write_versions import WriteVersions
from loom_memory.domain.conflict import Mark, Resolution, State, is_of
from loom_memory.domain.memory import Filter, Memory, to_milliseconds
from loom_memory.store.conflicts import ConflictFilter, ConflictRepository
from loom_memory.store.memories import MemoryRepository

_MOVED: Final = "One of the two memories was written or deleted since; look at both again."


@dataclass(frozen=True, slots=True)
class ConflictPage:
    """One page of conflicts, newest first; the token is empty on the last."""

    marks: list[Mark]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class Settled:
    """A settled conflict and the two memories as they are now."""

    mark: Mark
    newer: Memory
    older: Memory


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a conflict is to be settled.

    Attributes:
        resolution: How.
        value: Text that the newer memory becomes, for a merge.
        note: Why.
    """

    resolution: Resolution
    value: str = ""
    note: str = ""


class ConflictDesk:
    """Answers `memory.conflicts` and `memory.resolve_conflict`."""

    def __init__(
        self,
        conflicts: ConflictRepository,
        memories: MemoryRepository,
        writer: MemoryWriter,
        validity: Validity,
        *,
        clock: Clock,
        numbers: WriteVersions,
    ) -> None:
        self._conflicts = conflicts
        self._memories = memories
        self._writer = writer
        self._validity = validity
        self._clock = clock
        self._numbers = numbers

    async def page(self, scope: Scope, wanted: ConflictFilter, *, page_size: int, page_token: str) -> ConflictPage:
        """Returns one page of conflicts.

        Raises:
            InvalidArgument: The token is none of this list.
        """
        query: dict[str, JsonValue] = {
            "op": "conflicts", "org": scope.org, "namespace": scope.namespace, "user_id": wanted.user_id,
            "session_id": wanted.session_id, "states": [state.value for state in wanted.states], "key": wanted.key,
        }  # fmt: skip
        place = decode_page_token(page_token, query, (str,))
        marks = await self._conflicts.page(scope, wanted, "" if place is None else str(place[0]), page_size + 1)
        if len(marks) <= page_size:
            return ConflictPage(marks, "")
        shown = marks[:page_size]
        return ConflictPage(shown, encode_page_token((shown[-1].conflict_id,), query))

    async def settle(
        self, scope: Scope, conflict_id: str, judgement: Judgement, actor: str, *, visible: Filter | None = None
    ) -> Settled:
        """Settles one conflict as it is judged; a second judgement may be another.

        Args:
            scope: Namespace of the conflict.
            conflict_id: Its name.
            judgement: How it is settled.
            actor: Who judges: `human:` or `process:` and a subject.
            visible: What the caller may read; None for everything.

        Raises:
            NotFound: There is no such conflict that the caller may read.
            Conflict: One of the two memories was written or deleted since.
            InvalidArgument: A merge has no value, or something else has one.
        """
        if (judgement.resolution is Resolution.MERGE) != bool(judgement.value.strip()):
            raise InvalidArgument.of("value", "belongs to the resolution `merge`, which needs it, and to no other")
        mark = await self._conflicts.find(scope, conflict_id)
        if mark is None or not _may_see(mark, visible or Filter()):
            raise NotFound("There is no such conflict.", detail={"conflict_id": conflict_id})
        rows = await self._memories.current(scope, [mark.newer, mark.older])
        newer, older = rows.get(mark.newer), rows.get(mark.older)
        if newer is None or older is None or not is_of(mark, newer, older):
            await self._put(mark, State.STALE)
            raise Conflict(_MOVED, detail={"conflict_id": conflict_id})
        newer, older = await self._apply(mark, newer, older, judgement, actor)
        settled = await self._put(
            replace(mark, newer_version=newer.version, older_version=older.version),
            State.RESOLVED,
            resolution=judgement.resolution.value,
            resolved_by=actor,
            note=judgement.note,
        )
        return Settled(settled, newer, older)

    async def postpone(self, mark: Mark, *, attempts: int, retry_s: float) -> Mark:
        """Leaves a mark open, with the attempts that it took and for a while."""
        retry_at = to_milliseconds(self._clock.now() + timedelta(seconds=retry_s))
        return await self._put(mark, State.OPEN, attempts=attempts, retry_at=retry_at)

    async def drop(self, mark: Mark) -> Mark:
        """Marks a conflict of which one memory is another by now."""
        return await self._put(mark, State.STALE)

    async def _apply(
        self, mark: Mark, newer: Memory, older: Memory, judgement: Judgement, actor: str
    ) -> tuple[Memory, Memory]:
        # A judgement before this one may have ended the newer one at its own beginning.
        reopened = None if newer.invalid_at == mark.ends_at else newer.invalid_at
        older_until: datetime | None
        newer_until: datetime | None
        match judgement.resolution:
            case Resolution.KEEP_NEWER | Resolution.MERGE:
                older_until, newer_until = mark.ends_at, reopened
            case Resolution.KEEP_BOTH:
                older_until, newer_until = mark.restore_to, reopened
            case Resolution.KEEP_OLDER:
                older_until, newer_until = mark.restore_to, mark.ends_at
            case _:
                assert_never(judgement.resolution)
        if judgement.resolution is Resolution.MERGE:
            await self._merge(mark, newer, judgement.value, actor)
            newer = (await self._memories.current(mark.scope, [mark.newer]))[mark.newer]
        newer = await self._until(newer, newer_until)
        return newer, await self._until(older, older_until)

    async def _merge(self, mark: Mark, newer: Memory, value: str, actor: str) -> None:
        draft = Draft(
            identity=mark.newer,
            content=replace(newer.content, value=value),
            expected_version=newer.revision,
            stated=newer.stated,
            verbatim=True,
        )
        written = await self._writer.set_one(mark.scope, draft, actor)
        if written.is_refused:
            raise InvalidArgument.of("value", written.message)

    async def _until(self, memory: Memory, at: datetime | None) -> Memory:
        held = await self._validity.restate(
            memory.scope, memory.identity, lambda row: until(row, at) if row.version == memory.version else None
        )
        if held is None:
            raise Conflict(_MOVED, detail={"key": memory.identity.key})
        return held

    async def _put(self, mark: Mark, state: State, **more: object) -> Mark:
        now = max(to_milliseconds(self._clock.now()), mark.created_at)
        with self._numbers.write() as numbers:
            version = numbers.next(after=mark.version)
        became = mark.became(state, now, version, **more)
        await self._conflicts.put([became])
        return became


def _may_see(mark: Mark, visible: Filter) -> bool:
    both = (mark.newer, mark.older)
    return (visible.user_id is None or all(each.user_id == visible.user_id for each in both)) and (
        visible.session_id is None or all(each.session_id == visible.session_id for each in both)
    )
