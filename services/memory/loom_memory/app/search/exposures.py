"""Records which memories were shown to whom, and what is recalled often."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

import cachetools

from loom_common.call import Scope, current
from loom_common.clock import Clock
from loom_common.errors import LoomError
from loom_memory.app.search.background import BackgroundRows
from loom_memory.app.search.ports import Reinforcement
from loom_memory.domain.memory import Identity, Memory
from loom_memory.domain.signals import NO_USE, Use
from loom_memory.store.exposures import MAX_ROWS, Exposure, ExposureRepository

StartTask = Callable[[str, Coroutine[None, None, None]], asyncio.Task[None]]
"""Runs work beside the calls; `Workers.start` does."""

logger = logging.getLogger(__name__)

_RECALL_SPAN: Final = timedelta(days=30)
_KEPT_S: Final = 60.0
_MAX_NAMESPACES: Final = 4_096
_MAX_USES: Final = 10_000


class Exposures:
    """Takes down what reads show. Exactly searches, `memory.ask`, `memory.get`, `memory.list` and `memory.inspect` do.

    Args:
        repository: Where they are kept.
        clock: Time.
        recorded: Whether any are kept; a deployment may turn it off.
    """

    def __init__(self, repository: ExposureRepository, clock: Clock, *, recorded: bool) -> None:
        self._repository = repository
        self._clock = clock
        self.recorded = recorded
        self.rows: BackgroundRows[Exposure] = BackgroundRows("exposures", repository.insert)

    def shown(self, memories: Sequence[Memory], scores: Sequence[float] = (), *, op: str = "") -> None:
        """Takes what the running call shows, in its order. Neither waits nor fails.

        Args:
            memories: What is shown.
            scores: Score of each; empty where nothing is scored.
            op: What shows it; the running call's operation where it is empty.
        """
        if not self.recorded or not memories:
            return
        call, now = current(), self._clock.now()
        claims = call.claims
        self.rows.add(
            Exposure(
                scope=memory.scope,
                identity=memory.identity,
                revision=memory.revision,
                version=memory.version,
                shown_at=now,
                op=op or call.op,
                request_id=call.request_id,
                run_id=call.run_id or "",
                subject=claims.sub if claims else "",
                consumer=claims.consumer if claims else "",
                rank=place,
                score=scores[place - 1] if scores else 0.0,
            )
            for place, memory in enumerate(memories, 1)
        )

    async def of_run(self, org: str, namespace: str, run_id: str, subject: str) -> list[Exposure]:
        """Returns what was shown under a run, oldest first, at most 5,000; what was taken here is stored first."""
        await self.rows.flush()
        return await self._repository.of_run(org, namespace, run_id, subject, MAX_ROWS)


class RecallCredit:
    """How memories were used: what others count, and how often searches recalled each. A `Reinforcement`.

    What is known of a namespace is read in the background and kept for a minute, so that no search waits for it: the
    first ones go by what others count alone.
    """

    def __init__(self, exposures: ExposureRepository, others: Reinforcement, clock: Clock, start: StartTask) -> None:
        self._exposures = exposures
        self._others = others
        self._clock = clock
        self._start = start
        self._kept: cachetools.LRUCache[Scope, tuple[float, Mapping[Identity, Use]]] = cachetools.LRUCache(
            _MAX_NAMESPACES
        )
        self._reading: set[Scope] = set()

    async def uses(self, scope: Scope) -> Mapping[Identity, Use]:
        """See `Reinforcement.uses`."""
        kept = self._kept.get(scope)
        if kept is None or self._clock.monotonic_s() - kept[0] >= _KEPT_S:
            self._read_soon(scope)
        return kept[1] if kept else {}

    async def read(self, scope: Scope) -> None:
        """Reads what is known of a namespace anew."""
        try:
            since = self._clock.now() - _RECALL_SPAN
            recalls = await self._exposures.recalls(scope, since, _MAX_USES)
            uses = dict(await self._others.uses(scope))
        except LoomError as error:
            logger.info("uses_unread", extra={"reason": error.reason.value})
            return
        for identity, count in recalls.items():
            uses[identity] = replace(uses.get(identity, NO_USE), recalled=count)
        self._kept[scope] = self._clock.monotonic_s(), uses

    def _read_soon(self, scope: Scope) -> None:
        if scope in self._reading:
            return
        self._reading.add(scope)
        task = self._start("recall_credit", self.read(scope))
        task.add_done_callback(lambda _: self._reading.discard(scope))
