"""Pages of a search behind the first: what was found is kept in its order, so that no page repeats or skips a match."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from loom_common.auth.directory import Directory
from loom_common.call import Scope, current
from loom_common.clock import Clock
from loom_common.errors import InvalidArgument
from loom_memory.app.access import narrowing, own_filter
from loom_memory.app.search.as_of import Past
from loom_memory.domain.memory import Filter, Hit, Identity, Kept, Memory
from loom_memory.store.memories import MemoryRepository
from loom_memory.store.search_pages import KeptHit, SearchPageRepository

TTL: Final = timedelta(minutes=10)
"""How long a handle is good. Source: chosen; longer than a reader takes for a page, shorter than anybody remembers."""

_HANDLE_BYTES: Final = 16
_MAX_ROWS: Final = 2_000


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One page: its hits, how many matches the whole search has, and the handle of the page behind it."""

    hits: list[Hit]
    candidates_total: int
    next_page: str


class SearchPages:
    """Keeps what searches found beyond their first page, for whoever asked and nobody else."""

    def __init__(
        self, pages: SearchPageRepository, memories: MemoryRepository, past: Past, directory: Directory, clock: Clock
    ) -> None:
        self._pages = pages
        self._directory = directory
        self._memories = memories
        self._past = past
        self._clock = clock

    async def keep(self, scope: Scope, kept: Sequence[Kept], first: int, as_of: datetime | None) -> str:
        """Returns the handle of the page that begins with what is kept; empty where nothing is.

        Args:
            scope: Namespace that was asked.
            kept: Matches behind those that were shown.
            first: How many were shown.
            as_of: Moment that was asked about; None for the present.
        """
        if not kept:
            return ""
        handle, now = secrets.token_hex(_HANDLE_BYTES), self._clock.now()
        hits = [
            KeptHit(place, hit.namespace, hit.identity, hit.score, hit.similarity, hit.low, as_of)
            for place, hit in enumerate(kept, first)
        ]
        await self._pages.insert(scope, handle, _caller(), hits, now, now + TTL)
        return f"{handle}.{first}"

    async def page(self, scope: Scope, token: str, size: int) -> SearchPage | None:
        """Returns a page, or None where its handle has passed its time or is another caller's.

        What was deleted since is not shown; what was written again is, as it is now, or as it was at the moment that
        the search asked about. Nor is what stands in a namespace that the token of this call may not read.

        Raises:
            InvalidArgument: It is no handle.
            BackendUnavailable: The store, or identity about another namespace, cannot be asked.
        """
        handle, place = _read(token)
        now = self._clock.now()
        # One more, to know whether a page follows; and whatever was deleted does not make a page short.
        hits: list[Hit] = []
        rows = await self._pages.page(scope, handle, _caller(), place, now, _MAX_ROWS)
        if not rows:
            return None
        readable = await self._readable(scope, rows)
        at = 0
        while at < len(rows) and len(hits) < size:
            part = rows[at : at + size - len(hits)]
            found = await self._read_rows(scope.org, [row for row in part if row.namespace in readable])
            hits += [
                Hit(found[row.namespace, row.identity], row.score, row.similarity, row.low)
                for row in part
                if (row.namespace, row.identity) in found
            ]
            at += len(part)
        follows = f"{handle}.{rows[at].place}" if at < len(rows) else ""
        return SearchPage(hits, rows[-1].place + 1, follows)

    async def _readable(self, scope: Scope, rows: Sequence[KeptHit]) -> frozenset[str]:
        """Returns those namespaces of rows that the running call may read: another token of its subject may less."""
        claims, readable = current().claims, {scope.namespace}
        for namespace in dict.fromkeys(row.namespace for row in rows):
            if namespace != scope.namespace and claims is not None:
                info = await self._directory.namespace_info(scope.org, namespace)
                role = None if info is None else claims.named_role(namespace)
                if info is not None and role is None and not info.restricted:
                    role = claims.wide_role
                if role is not None:
                    readable.add(namespace)
        return frozenset(readable)

    async def _read_rows(self, org: str, rows: Sequence[KeptHit]) -> dict[tuple[str, Identity], Memory]:
        found: dict[tuple[str, Identity], Memory] = {}
        if not rows:
            return found
        wanted, now, as_of = own_filter(Filter()), self._clock.now(), rows[0].as_of
        for namespace in dict.fromkeys(row.namespace for row in rows):
            scope = Scope(org, namespace)
            identities = [row.identity for row in rows if row.namespace == namespace]
            source = self._memories if as_of is None else await self._past.at(scope, wanted, as_of)
            memories = await source.fetch(scope, wanted, identities, now)
            found.update({(namespace, identity): memory for identity, memory in memories.items()})
        return found


def _caller() -> str:
    """Returns what a handle is bound to: the subject, and what its token narrows reads to."""
    claims = current().claims
    if claims is None:
        return ""
    return "\x1f".join([claims.sub, *narrowing(claims)])


def _read(token: str) -> tuple[str, int]:
    handle, dot, place = token.partition(".")
    if not dot or len(handle) != 2 * _HANDLE_BYTES or not place.isascii() or not place.isdigit() or len(place) > 6:
        raise InvalidArgument.of("page", "must be the next_page of the answer before, as it was given")
    return handle, int(place)
