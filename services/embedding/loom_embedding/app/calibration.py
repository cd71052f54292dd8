"""The calibration of the served model, and which thresholds are in force for a namespace."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import cachetools
import structlog

from loom_common.call import Scope
from loom_common.clock import Clock, MonotonicVersions
from loom_common.errors import LoomError
from loom_embedding.app.probe import Probe
from loom_embedding.domain.calibration import DRIFT, CalibrationUnusable, Quantiles, derive_thresholds
from loom_embedding.domain.embedder import ServedModel
from loom_embedding.domain.thresholds import Thresholds, Tier
from loom_embedding.store.calibrations import CalibrationRepository, ClusterCalibration, Measured

# Whoever asks keeps the answer for some seconds more: a namespace calibrated on one replica is served on all of them
# within a minute.
NAMESPACE_KEPT_S: Final = 45.0
_MAX_NAMESPACES: Final = 4_096

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class InForce:
    """Which thresholds hold.

    Attributes:
        tier: Where they come from.
        model: The served model.
        noise_floor: Cosine at or under which two texts are unrelated; the model's constant where nothing is calibrated.
        thresholds: All of them; None where the settings of the service that searches decide.
        digest: Equal on every replica that serves the same gates; empty where there are none.
        calibrated_at: When they were measured.
    """

    tier: Tier
    model: str
    noise_floor: float
    thresholds: Thresholds | None = None
    digest: str = ""
    calibrated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Adopted:
    row: ClusterCalibration
    in_force: InForce


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a namespace; `measured` is None where it has no calibration of its own."""

    measured: Measured | None


class Calibrations:
    """Adopts the calibration that the cluster agreed on, measures one where there is none, and resolves the tiers.

    Replicas that start at once may each publish; the last one counts, and all adopt it at their next look.
    """

    def __init__(
        self,
        rows: CalibrationRepository,
        probe: Probe,
        served: ServedModel,
        *,
        clock: Clock,
        enabled: bool = True,
    ) -> None:
        """Takes what it works with.

        Args:
            rows: The tables.
            probe: Measures the served model.
            served: The served model; one that is a fake is never measured.
            clock: Time, and how long a namespace's row is kept.
            enabled: `LOOM_ADAPTIVE_THRESHOLDS`.
        """
        self._rows = rows
        self._probe = probe
        self._served = served
        self._clock = clock
        self._versions = MonotonicVersions(clock)
        self._adopted: _Adopted | None = None
        self._unusable = False
        self._namespaces: cachetools.TTLCache[Scope, _Known] = cachetools.TTLCache(
            _MAX_NAMESPACES, NAMESPACE_KEPT_S, clock.monotonic_s
        )
        self.enabled = enabled and not served.fake

    @property
    def cluster(self) -> InForce:
        """What holds for a namespace without a calibration of its own."""
        if self._adopted is None:
            return InForce(Tier.SETTINGS, self._served.name, self._served.noise_floor)
        return self._adopted.in_force

    @property
    def quantiles(self) -> Quantiles | None:
        """Quantiles of the adopted calibration; None where there is none."""
        return None if self._adopted is None else self._adopted.row.quantiles

    async def refresh(self) -> None:
        """Adopts the model's calibration if it changed; where there is none, measures the model and publishes it.

        Raises:
            LoomError: The store or the model did not answer; the next call tries again.
        """
        if not self.enabled:
            return
        row = await self._rows.cluster(self._served.name)
        # Pairs that a model cannot tell apart today it cannot tell apart in a minute.
        if row is None and not self._unusable:
            row = await self._publish(await self._probe.cluster(), after=0)
        if row is not None:
            self._adopt(row)

    async def recalibrate(self) -> float:
        """Measures the model again, publishes that, and returns the largest change of a gate.

        Raises:
            LoomError: The store or the model did not answer. What was in force stays.
        """
        before = await self._rows.cluster(self._served.name)
        row = await self._publish(await self._probe.cluster(), after=before.version if before else 0)
        if row is None:
            return 0.0
        drift = _drift(before, row)
        if drift >= DRIFT:
            _log.warning("calibration_drift", model=self._served.name, drift=round(drift, 4), limit=DRIFT)
        self._adopt(row)
        return drift

    async def is_due(self, before: datetime) -> bool:
        """Tells whether the model was calibrated last before a time."""
        row = await self._rows.cluster(self._served.name)
        return row is not None and row.calibrated_at < before

    async def in_force(self, scope: Scope) -> InForce:
        """Returns what holds for a namespace: its own calibration, else the model's, else the settings.

        There is always an answer: while the store is away, what is known without it.
        """
        if not self.enabled:
            return self.cluster
        own = await self._own(scope)
        if own is None or own.model != self._served.name:
            return self.cluster
        try:
            return _in_force(Tier.NAMESPACE, own.model, own.quantiles, own.calibrated_at)
        except CalibrationUnusable:
            return self.cluster

    def forget(self, scope: Scope) -> None:
        """Reads the namespace's row again at the next look."""
        self._namespaces.pop(scope, None)

    async def _own(self, scope: Scope) -> Measured | None:
        known = self._namespaces.get(scope)
        if known is not None:
            return known.measured
        try:
            found = await self._rows.measured(scope)
        except LoomError as error:
            _log.warning("namespace_calibration_unread", reason=error.reason.value)
            return None
        self._namespaces[scope] = _Known(found)
        return found

    async def _publish(self, quantiles: Quantiles, *, after: int) -> ClusterCalibration | None:
        """Publishes what was measured and returns the row that counts, which may be another replica's."""
        try:
            derive_thresholds(quantiles)
        except CalibrationUnusable as error:
            self._unusable = True
            _log.error("calibration_unusable", model=self._served.name, why=str(error))
            return None
        self._unusable = False
        mine = ClusterCalibration(quantiles, self._clock.now(), self._versions.next(after=after))
        await self._rows.publish(self._served.name, mine)
        return await self._rows.cluster(self._served.name) or mine

    def _adopt(self, row: ClusterCalibration) -> None:
        if self._adopted is not None and self._adopted.row == row:
            return
        try:
            found = _in_force(Tier.CLUSTER, self._served.name, row.quantiles, row.calibrated_at)
        except CalibrationUnusable as error:
            _log.error("calibration_unusable", model=self._served.name, why=str(error))
            return
        self._adopted = _Adopted(row, found)
        _log.info(
            "calibration_adopted", model=found.model, calibration_hash=found.digest, noise_floor=found.noise_floor
        )


def _in_force(tier: Tier, model: str, quantiles: Quantiles, calibrated_at: datetime) -> InForce:
    thresholds = derive_thresholds(quantiles)
    return InForce(tier, model, thresholds.noise_floor, thresholds, thresholds.digest(model), calibrated_at)


def _drift(before: ClusterCalibration | None, after: ClusterCalibration) -> float:
    if before is None:
        return 0.0
    try:
        return derive_thresholds(before.quantiles).drift(derive_thresholds(after.quantiles))
    except CalibrationUnusable:
        return 0.0
