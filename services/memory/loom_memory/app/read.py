"""Reading memories by key, in lists and in their history."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Final, cast

from pydantic import JsonValue

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.page_tokens import decode_page_token, encode_page_token
from loom_memory.app.write_versions import WriteVersions
from loom_memory.domain.memory import Filter, Identity, Memory
from loom_memory.store.memories import LAST_VERSION, ListPlace, MemoryRepository
from loom_memory.store.versions import VersionRepository

_LIST_KINDS: Final = (int, str, str, str, int, int)
_LAST_REVISION: Final = 2**32
# Half of the largest message that a client takes by default; a longer page goes on with its token.
_PAGE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Page:
    """One page of memories, newest first; the token is empty on the last.

    Attributes:
        superseded_at: Of a page of a history, when each version's successor was written; None for the current one.
    """

    memories: list[Memory]
    next_page_token: str
    superseded_at: list[datetime | None] = field(default_factory=list)


class MemoryReader:
    """Answers `get`, `list` and `history`."""

    def __init__(
        self, memories: MemoryRepository, versions: VersionRepository, *, clock: Clock, numbers: WriteVersions
    ) -> None:
        self._memories = memories
        self._versions = versions
        self._clock = clock
        self._numbers = numbers

    async def get(self, scope: Scope, identity: Identity) -> Memory | None:
        """Returns the memory, or None where there is none, it was deleted or it has expired."""
        memory = (await self._memories.current(scope, [identity])).get(identity)
        return memory if memory is not None and memory.is_visible(self._clock.now()) else None

    async def list(self, scope: Scope, wanted: Filter, *, page_size: int, page_token: str) -> Page:
        """Returns one page, by the time of the last write, newest first.

        A memory that is there from the first page to the last comes exactly once, whatever is written meanwhile.

        Raises:
            InvalidArgument: The token is none of this list.
        """
        query = _list_query(scope, wanted)
        place = decode_page_token(page_token, query, _LIST_KINDS)
        # Read before the page: whatever is written from here on keeps the place it had.
        begin = self._first_place() if place is None else _list_place(place)
        now = self._clock.now()
        listed = await self._memories.page(scope, wanted, now, begin, page_size + 1)
        shown = listed[:page_size]
        found = await self._memories.fetch(scope, wanted, [row.identity for row in shown], now)
        memories = [found[row.identity] for row in shown if row.identity in found]
        fitting = _fitting(memories)
        if fitting == len(memories) and len(listed) <= page_size:
            return Page(memories, "")
        if fitting < len(memories):
            memories = memories[:fitting]
            last = next(row for row in shown if row.identity == memories[-1].identity)
        else:
            last = shown[-1]
        upto = min(begin.upto, last.newest)
        token = encode_page_token((last.place, *last.identity, min(begin.settled, upto), upto), query)
        return Page(memories, token)

    async def history(self, scope: Scope, identity: Identity, *, page_size: int, page_token: str) -> Page:
        """Returns one page of a memory's versions; none where `get` finds no memory.

        Raises:
            InvalidArgument: The token is none of this history.
        """
        query: dict[str, JsonValue] = {"op": "history", **_scope(scope), "identity": list(identity)}
        place = decode_page_token(page_token, query, (int,))
        current = await self.get(scope, identity)
        if current is None:
            return Page([], "")
        below = _LAST_REVISION if place is None else min(max(cast(int, place[0]), 0), _LAST_REVISION)
        # Of a later page the last version of the page before is read again: it succeeded this one's first.
        seen = 0 if place is None else 1
        versions = await self._versions.history(current, below=below + seen, limit=page_size + 1 + seen)
        if seen and (not versions or versions[0].revision != below):
            seen = 0
        times: list[datetime | None] = [None, *(version.updated_at for version in versions)]
        versions, superseded_at = versions[seen:], times[seen:]
        fitting = _fitting(versions[:page_size])
        if fitting == len(versions):
            return Page(versions, "", superseded_at[:fitting])
        versions = versions[:fitting]
        return Page(versions, encode_page_token((versions[-1].revision,), query), superseded_at[:fitting])

    def _first_place(self) -> ListPlace:
        return ListPlace(after=LAST_VERSION, identity=Identity(""), settled=self._numbers.settled, upto=LAST_VERSION)


def _fitting(memories: Sequence[Memory]) -> int:
    """Returns how many of the memories one answer can carry whole; at least one of any."""
    size = 0
    for count, memory in enumerate(memories):
        size += len(memory.content.value.encode())
        if count and size > _PAGE_BYTES:
            return count
    return len(memories)


def _scope(scope: Scope) -> dict[str, JsonValue]:
    return {"org": scope.org, "namespace": scope.namespace}


def _list_query(scope: Scope, wanted: Filter) -> Mapping[str, JsonValue]:
    filters = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(wanted).items()}
    return {"op": "list", **_scope(scope), **filters}


def _list_place(place: tuple[object, ...]) -> ListPlace:
    after, key, user_id, session_id, settled, upto = place
    numbers = [min(max(cast(int, number), 0), LAST_VERSION) for number in (after, settled, upto)]
    return ListPlace(numbers[0], Identity(cast(str, key), cast(str, user_id), cast(str, session_id)), *numbers[1:])
