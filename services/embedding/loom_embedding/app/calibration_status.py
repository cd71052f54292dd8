"""Adds the thresholds in force to what the embedding service says of itself."""

from dataclasses import asdict, replace
from typing import Final

from loom_common.status import StatusReport, StatusSource
from loom_embedding.app.calibration import Calibrations

PREFIX: Final = "adaptive_thresholds."
"""Facts of this name belong together; `/v1/health` shows them as one section."""


class CalibrationStatus:
    """The report of another source, and the calibration."""

    def __init__(self, inner: StatusSource, calibrations: Calibrations) -> None:
        self._inner = inner
        self._calibrations = calibrations

    async def report(self) -> StatusReport:
        """See `StatusSource.report`."""
        report = await self._inner.report()
        in_force = self._calibrations.cluster
        facts = {
            "enabled": "true" if self._calibrations.enabled else "false",
            "source": in_force.tier.value,
            "noise_floor": f"{in_force.noise_floor:g}",
        }
        if in_force.thresholds is not None:
            facts |= {name: f"{value:g}" for name, value in asdict(in_force.thresholds).items()}
            facts["calibration_hash"] = in_force.digest
        return replace(report, facts={**report.facts, **{PREFIX + name: value for name, value in facts.items()}})
