"""Whether analyses may run now: a check that passed not long ago says so, and nothing else does."""

import asyncio
from typing import Final

import structlog

from loom_common.clock import Clock
from loom_common.errors import AnalysisUnavailable, LoomError, Overloaded
from loom_common.status import Problem
from loom_insights.domain.boundary import AnalysisBoundary, BoundaryBroken, BoundarySilent

_SILENT_WAIT_S: Final = 5.0
# Intervals without an answer after which health names it. Source: chosen; one lost answer is no news.
_SILENT_INTERVALS: Final = 3
# A check that did not pass is made again soon: at a start the others may not be there yet.
_FIRST_WAIT_S: Final = 1.0
_PROBE_TIMEOUT_S: Final = 60.0

_log = structlog.get_logger(__name__)


class Availability:
    """Checks the boundary at start and then at an interval, and refuses while the last check did not pass."""

    def __init__(self, boundary: AnalysisBoundary, interval_s: float, clock: Clock) -> None:
        self._boundary = boundary
        self._interval_s = interval_s
        self._clock = clock
        self._broken = ""
        self._silent_since_s: float | None = clock.monotonic_s()
        self._checking = asyncio.Lock()

    @property
    def holds(self) -> bool:
        """Whether the last check passed."""
        return not self._broken and self._silent_since_s is None

    async def require(self) -> None:
        """Returns where the last check passed; one that got no answer is made again first.

        Raises:
            AnalysisUnavailable: It failed.
            Overloaded: It got no answer.
        """
        if self._silent_since_s is not None and not self._broken:
            await self.check()
        if self._broken:
            raise AnalysisUnavailable("Analysis is not available now; an operator finds why with `loom doctor`.")
        if self._silent_since_s is not None:
            raise Overloaded(
                "The boundary around analyses is being checked; try again shortly.", retry_after_s=_SILENT_WAIT_S
            )

    async def check(self) -> None:
        """Checks the boundary once; what comes of it is kept."""
        async with self._checking:
            try:
                async with asyncio.timeout(_PROBE_TIMEOUT_S):
                    await self._boundary.probe()
            except BoundaryBroken as error:
                self._broken, self._silent_since_s = str(error), None
                _log.error("analysis_boundary_broken", boundary=self._boundary.kind, finding=str(error))
            except (BoundarySilent, LoomError, TimeoutError) as error:
                # What was found broken stays so until a check passes.
                if self._silent_since_s is None:
                    self._silent_since_s = self._clock.monotonic_s()
                _log.warning("analysis_boundary_silent", boundary=self._boundary.kind, kind=type(error).__name__)
            else:
                self._broken, self._silent_since_s = "", None

    async def keep_checking(self) -> None:
        """Checks at the interval until it is cancelled."""
        wait_s = _FIRST_WAIT_S
        while True:
            await self.check()
            wait_s = self._interval_s if self.holds else min(2 * wait_s, self._interval_s)
            await asyncio.sleep(wait_s)

    def problems(self) -> tuple[Problem, ...]:
        """Returns what an operator should know, in words of ours alone: health answers without a token."""
        if self._broken:
            return (Problem("analysis_unavailable", f"insights.query answers nothing: {self._broken}", "error"),)
        since = self._silent_since_s
        if since is not None and self._clock.monotonic_s() - since > _SILENT_INTERVALS * self._interval_s:
            return (Problem("analysis_unchecked", "No check of the boundary around analyses got an answer.", "error"),)
        return ()
