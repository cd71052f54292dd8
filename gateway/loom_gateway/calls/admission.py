"""How many calls are under way at once: beyond it some wait a little, and the rest are told to come back.

A server that takes every call answers all of them late once more come than it can do; callers then give up and send
again, and nothing is answered at all. So each class of each service's operations has a number of places. A call waits
for one a short while, in order of arrival, and is refused when none is free by then or too many wait already: what is
taken is answered in time, and what is not is known at once.
"""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from typing import Final

from loom_common.errors import Overloaded
from loom_common.ops import OpSpec
from loom_common.telemetry import add

# Source: chosen. By then the calls that ran are done, or the waiting of others has ended.
_RETRY_AFTER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Places of each class of each service's operations."""

    max_calls: int = 64
    """Calls that run at once. Source: chosen; several times what a machine of few cores works on at once."""
    max_waiting: int = 256
    """Calls that wait for a place."""
    wait_s: float = 1.0
    """Longest wait for one. Units: seconds."""
    max_streams: int = 256
    """Answers that are streamed at once, for each service. They wait for no place."""


class Admission:
    """Hands out places. Exact within this process and unknown to others."""

    def __init__(self, limits: AdmissionLimits | None = None) -> None:
        self._limits = limits or AdmissionLimits()
        self._rooms: dict[tuple[str, str], Room] = {}

    def room(self, spec: OpSpec) -> "Room":
        """Returns where an operation's calls get their places.

        A service that hangs, or a class that is slow, fills its own places and no other's.
        """
        key = (spec.owner, "stream" if spec.response_streaming else spec.rate_class)
        room = self._rooms.get(key)
        if room is None:
            limits = self._limits
            places = limits.max_streams if spec.response_streaming else limits.max_calls
            waiting = 0 if spec.response_streaming else limits.max_waiting
            room = self._rooms[key] = Room(places, waiting, limits.wait_s, key[1])
        return room


class Room:
    """Some places, and the line before them."""

    def __init__(self, places: int, max_waiting: int, wait_s: float, name: str) -> None:
        self._free = places
        self._max_waiting = max_waiting
        self._wait_s = wait_s
        self._name = name
        self._line: deque[asyncio.Future[None]] = deque()

    async def enter(self, left_s: float | None = None) -> None:
        """Takes a place, which `leave` gives back.

        Args:
            left_s: Units: seconds after which the caller waits for no answer any more; None for no such time.

        Raises:
            Overloaded: There was none in time.
        """
        if self._free > 0 and not self._line:
            self._free -= 1
            return
        if len(self._line) >= self._max_waiting:
            raise self._refusal()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            async with asyncio.timeout(self._wait_s if left_s is None else min(self._wait_s, left_s)):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.leave()  # the place came as the wait ended: the next one gets it
            else:
                with contextlib.suppress(ValueError):
                    self._line.remove(turn)
            if isinstance(error, TimeoutError):
                raise self._refusal() from None
            raise

    def leave(self) -> None:
        """Gives the place to the one that waits longest."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _refusal(self) -> Overloaded:
        add("loom.gateway.shed", rate_class=self._name)
        return Overloaded(
            "Loom has more calls under way than it can answer in time; send it again a little later.",
            detail={"rate_class": self._name},
            retry_after_s=_RETRY_AFTER_S,
        )
