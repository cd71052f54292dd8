"""Rows that a read leaves behind: taken at once, stored in the background, counted where they are lost."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from loom_common import telemetry
from loom_common.clickhouse import tagged
from loom_common.errors import LoomError

logger = logging.getLogger(__name__)

Row = TypeVar("Row")

# Source: chosen. Rows of some seconds at full speed; each batch is one insert.
_MAX_WAITING: Final = 20_000
_MAX_BATCH: Final = 2_000
_GATHER_S: Final = 1.0
_ATTEMPTS: Final = 3
_FIRST_WAIT_S: Final = 0.2
_LOST: Final = "loom.memory.records.lost"


class BackgroundRows(Generic[Row]):
    """Stores rows of one table without anybody waiting for it.

    Rows are stored about a second after they were taken. What cannot be stored is tried twice again; then,
    and where more wait than may, rows are lost and counted: a read never fails for what is recorded of it.

    Args:
        name: What the rows are, for the metric.
        store: Stores rows.
    """

    def __init__(self, name: str, store: Callable[[Sequence[Row]], Awaitable[None]]) -> None:
        self._name = name
        self._store = store
        self._waiting: deque[Row] = deque()
        self._arrived = asyncio.Event()
        self._flushing = asyncio.Lock()
        self.lost_count = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Takes rows. Neither waits nor fails."""
        lost = 0
        for row in rows:
            if len(self._waiting) >= _MAX_WAITING:
                lost += 1
            else:
                self._waiting.append(row)
        self._lose(lost)
        if self._waiting:
            self._arrived.set()

    async def run(self) -> None:
        """Stores what is taken, until it is cancelled."""
        while True:
            await self._arrived.wait()
            await asyncio.sleep(_GATHER_S)
            await self.flush()

    async def flush(self) -> None:
        """Stores what waits; returns once it is stored or lost."""
        async with self._flushing:
            self._arrived.clear()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(_MAX_BATCH, len(self._waiting)))]
                try:
                    await self._stored(batch)
                except asyncio.CancelledError:
                    # Whoever stops it flushes again: it may have been stored, and is then stored twice.
                    self._waiting.extendleft(reversed(batch))
                    raise

    async def _stored(self, batch: Sequence[Row]) -> None:
        wait_s = _FIRST_WAIT_S
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with tagged(f"memory.{self._name}"):
                    await self._store(batch)
                return
            except LoomError as error:
                if attempt == _ATTEMPTS:
                    logger.warning(
                        "records_lost", extra={"records": self._name, "rows": len(batch), "reason": error.reason.value}
                    )
                    self._lose(len(batch))
                    return
            await asyncio.sleep(wait_s)
            wait_s *= 2

    def _lose(self, count: int) -> None:
        if count:
            self.lost_count += count
            telemetry.add(_LOST, count, records=self._name)
