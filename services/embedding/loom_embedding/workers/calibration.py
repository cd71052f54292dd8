"""Keeps the served model's calibration the cluster's own, beside the calls: no start waits for it."""

import asyncio
from typing import Final

import structlog

from loom_common.clickhouse import tagged
from loom_common.errors import LoomError
from loom_common.features import Feature
from loom_common.model_calls.jobs import system
from loom_embedding.app.calibration import Calibrations

OP: Final = "embedding.calibration"

_log = structlog.get_logger(__name__)


class CalibrationKeeper:
    """Looks at once, and then every `refresh_s` seconds."""

    def __init__(self, calibrations: Calibrations, refresh_s: float) -> None:
        self._calibrations = calibrations
        self._refresh_s = refresh_s

    async def run(self) -> None:
        """Works until it is cancelled. Nothing that goes wrong ends it: searches have the settings meanwhile."""
        while self._calibrations.enabled:
            await self.look()
            await asyncio.sleep(self._refresh_s)

    async def look(self) -> None:
        """Adopts, or measures and publishes."""
        with tagged(OP), system(Feature.SYSTEM_CALIBRATION):
            try:
                await self._calibrations.refresh()
            except LoomError as error:
                _log.warning("calibration_failed", reason=error.reason.value, message=error.message)
            except Exception:  # noqa: BLE001 - whatever a provider's library raises; a worker is a top
                _log.exception("calibration_failed")
