"""Keeps searches as they were asked, so that they can be asked again another way."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from loom_common.auth.directory import Directory
from loom_common.call import Scope, current
from loom_common.clock import Clock
from loom_common.errors import LoomError
from loom_memory.app.search.background import BackgroundRows
from loom_memory.domain.memory import Filter, Hit
from loom_memory.store.search_traces import SearchTrace, SearchTraceRepository

_MAX_FOUND: Final = 100


class Traces:
    """Takes down searches, but none of a restricted namespace, whose questions are kept nowhere.

    Args:
        repository: Where they are kept.
        directory: Knows which namespaces are restricted.
        clock: Time.
        days: How long each is kept; 0 for not at all.
    """

    def __init__(self, repository: SearchTraceRepository, directory: Directory, clock: Clock, *, days: int) -> None:
        self._repository = repository
        self._directory = directory
        self._clock = clock
        self._days = days
        self.rows: BackgroundRows[SearchTrace] = BackgroundRows("search_traces", self._store)

    @property
    def are_kept(self) -> bool:
        """Whether any are."""
        return self._days > 0

    def searched(
        self, scope: Scope, query: str, wanted: Filter, request: str, hits: Sequence[Hit], model: str = ""
    ) -> None:
        """Takes a search of the running call. Neither waits nor fails.

        Args:
            scope: Namespace that was asked.
            query: What was asked.
            wanted: Whose memories were asked for; of it user and session are kept.
            request: The request as JSON.
            hits: What answered it, best first.
            model: The model that compared meanings.
        """
        if not self._days:
            return
        call, now = current(), self._clock.now()
        self.rows.add(
            [
                SearchTrace(
                    scope=scope,
                    asked_at=now,
                    request_id=call.request_id,
                    op=call.op,
                    subject=call.claims.sub if call.claims else "",
                    user_id=wanted.user_id or "",
                    session_id=wanted.session_id or "",
                    query=query,
                    request=request,
                    # Of the asked namespace alone: another may be restricted, and a replay asks this one.
                    found=tuple(hit.memory.identity for hit in hits if hit.memory.scope == scope)[:_MAX_FOUND],
                    embedding_model=model,
                    expires_at=now + timedelta(days=self._days),
                )
            ]
        )

    async def _store(self, traces: Sequence[SearchTrace]) -> None:
        scopes = {trace.scope for trace in traces}
        kept = {scope for scope in scopes if not await self._is_restricted(scope)}
        rows = [trace for trace in traces if trace.scope in kept]
        if rows:
            await self._repository.insert(rows)

    async def _is_restricted(self, scope: Scope) -> bool:
        """Says whether a namespace's questions may not be kept; one that is not known is restricted."""
        try:
            info = await self._directory.namespace_info(scope.org, scope.namespace)
        except LoomError:
            return True
        return info is None or info.restricted
