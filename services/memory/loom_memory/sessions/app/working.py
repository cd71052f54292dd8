"""Keeping what a session has in mind."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims
from loom_common.errors import Conflict, InvalidArgument
from loom_memory.domain.memory import to_milliseconds
from loom_memory.profiles.domain.sections import label_of
from loom_memory.sessions.app.access import checked_text, named_session
from loom_memory.sessions.app.writers import Writers
from loom_memory.sessions.domain.working import (
    DEFAULT_TTL_S,
    MAX_ITEMS,
    MAX_TTL_S,
    MAX_VALUE_BYTES,
    MIN_TTL_S,
    Session,
    WorkingItem,
    why_no_room,
)
from loom_memory.sessions.store.working import WorkingRepository


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is kept in mind.

    Attributes:
        session: As the caller names it; a narrow token's own fills what is absent.
        expected: Version that it replaces, 0 for an item that is not there; None for whichever is there.
    """

    session: Session
    label: str
    value: str
    actor: str
    ttl_s: int = DEFAULT_TTL_S
    expected: int | None = None


class WorkingMemory:
    """Keeps the items of sessions. Every method keeps to what the running call's token may address."""

    def __init__(self, rows: WorkingRepository, clock: Clock, claims: Claims | None) -> None:
        self._rows = rows
        self._clock = clock
        self._writers = Writers("working_memory", clock, claims)

    async def read(
        self, scope: Scope, user_id: str, session_id: str, labels: Collection[str] = ()
    ) -> tuple[WorkingItem, ...]:
        """Returns the items of a session that are there, the newest value first; those of some labels, or all.

        Raises:
            AuthInsufficient: The session is not the token's own.
            InvalidArgument: No session is named, or a label is none.
        """
        session = named_session(user_id, session_id)
        wanted = {_label(one) for one in labels}
        items = await self._rows.items(scope, session, self._clock.now(), MAX_ITEMS)
        return tuple(item for item in items if not wanted or item.label in wanted)

    async def set(self, scope: Scope, asked: Keeping) -> tuple[WorkingItem, bool]:
        """Puts an item into a session. Returns it, and whether its value is new.

        Raises:
            AuthInsufficient: The session is not the token's own.
            InvalidArgument: The label or the value is none, or the session has no room.
            Conflict: `expected` is not the current version.
        """
        session = named_session(*asked.session)
        label, value = _label(asked.label), _value(asked.value)
        if not MIN_TTL_S <= asked.ttl_s <= MAX_TTL_S:
            raise InvalidArgument.of("ttl_s", f"must be {MIN_TTL_S} to {MAX_TTL_S}")
        async with self._writers.alone(scope, *session) as writing:
            now = to_milliseconds(self._clock.now())
            newest = await self._rows.newest(scope, session, label)
            live = newest if newest is not None and newest.is_live(now) else None
            current = 0 if live is None else live.version
            if asked.expected is not None and asked.expected != current:
                raise Conflict("The item is at another version; read it again.", detail={"current_version": current})
            others = [one for one in await self._rows.items(scope, session, now, MAX_ITEMS) if one.label != label]
            if why := why_no_room(others, label, value):
                raise InvalidArgument.of(*why)
            expires_at = now + timedelta(seconds=asked.ttl_s)
            # An older row of the item must be gone before this one is, or it would be seen again.
            kept_until = expires_at if newest is None else max(expires_at, newest.kept_until)
            is_same = live is not None and live.value == value
            item = WorkingItem(
                label,
                value,
                session,
                live.version if live is not None and is_same else (newest.version if newest else 0) + 1,
                asked.actor,
                live.updated_at if live is not None and is_same else now,
                expires_at,
                kept_until,
            )
            await self._rows.insert(scope, [item], writing.version())
        return item, not is_same

    async def clear(self, scope: Scope, session: Session, labels: Collection[str], actor: str) -> int:
        """Takes items out of a session, all where no label is named. Returns how many were there.

        Raises:
            AuthInsufficient: The session is not the token's own.
            InvalidArgument: No session is named, or a label is none.
        """
        session = named_session(*session)
        wanted = {_label(one) for one in labels}
        async with self._writers.alone(scope, *session) as writing:
            now = to_milliseconds(self._clock.now())
            items = await self._rows.items(scope, session, now, MAX_ITEMS)
            gone = [
                replace(
                    item,
                    value="",
                    version=item.version + 1,
                    actor=actor,
                    updated_at=now,
                    expires_at=now,
                    is_removed=True,
                )
                for item in items
                if not wanted or item.label in wanted
            ]
            await self._rows.insert(scope, gone, writing.version())
        return len(gone)


def _label(text: str) -> str:
    try:
        return label_of(text)
    except ValueError as error:
        raise InvalidArgument.of("label", str(error)) from error


def _value(text: str) -> str:
    value = checked_text("value", text)
    if not value:
        raise InvalidArgument.of("value", "is empty; working_memory.clear takes an item out")
    if len(value.encode("utf-8", "surrogatepass")) > MAX_VALUE_BYTES:
        raise InvalidArgument.of("value", f"must be at most {MAX_VALUE_BYTES} bytes of UTF-8")
    return value
