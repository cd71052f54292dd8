"""Measures the model again once a week, and the namespaces that have pairs of their own, on one replica."""

import asyncio
from datetime import timedelta
from typing import Final

import structlog

from loom_common.call import Scope
from loom_common.clickhouse import tagged
from loom_common.clock import Clock
from loom_common.errors import LoomError
from loom_common.features import Feature
from loom_common.leases import Lease, LeaseLost, Leases
from loom_common.model_calls.jobs import for_org, system
from loom_embedding.app.calibration import Calibrations
from loom_embedding.app.namespace_calibration import NamespaceCalibrations
from loom_embedding.domain.embedder import ServedModel
from loom_embedding.store.calibrations import CalibrationRepository

OP: Final = "embedding.recalibration"
LEASE: Final = OP

PERIOD: Final = timedelta(days=7)
# How often a replica looks whether something is due. Source: chosen; a look is three statements.
_LOOK_S: Final = 3600.0
_FIRST_LOOK_S: Final = 300.0
# Above the time of one probe, before and after which it is renewed.
_LEASE_S: Final = 300.0
_BATCH: Final = 100

_log = structlog.get_logger(__name__)


class Recalibration:
    """What is due is read from the rows, so that restarts neither skip nor repeat it."""

    def __init__(
        self,
        rows: CalibrationRepository,
        calibrations: Calibrations,
        namespaces: NamespaceCalibrations,
        served: ServedModel,
        leases: Leases,
        clock: Clock,
    ) -> None:
        self._rows = rows
        self._calibrations = calibrations
        self._namespaces = namespaces
        self._served = served
        self._leases = leases
        self._clock = clock

    async def run(self) -> None:
        """Works until it is cancelled."""
        wait_s = _FIRST_LOOK_S
        while self._calibrations.enabled:
            await asyncio.sleep(wait_s)
            wait_s = _LOOK_S
            with tagged(OP):
                try:
                    await self.take_turn()
                except (LoomError, LeaseLost):
                    _log.warning("recalibration_interrupted", exc_info=True)
                except Exception:  # noqa: BLE001 - whatever a provider's library raises; a worker is a top
                    _log.exception("recalibration_failed")

    async def take_turn(self) -> None:
        """Does what is due, or leaves it to the replica that holds the lease.

        Raises:
            LeaseLost: Another replica does it now.
            LoomError: The store or the model did not answer.
        """
        async with self._leases.taken(LEASE, _LEASE_S) as lease:
            if lease is not None:
                await self._recalibrate(lease)

    async def _recalibrate(self, lease: Lease) -> None:
        before = self._clock.now() - PERIOD
        if await self._calibrations.is_due(before):
            await lease.renew()
            with system(Feature.SYSTEM_RECALIBRATION):
                drift = await self._calibrations.recalibrate()
            _log.info("recalibrated", model=self._served.name, drift=round(drift, 4))
        after = Scope("", "")
        while due := await self._rows.due(self._served.name, before, after, _BATCH):
            for scope in due:
                await lease.renew()
                await self._measure(scope)
            after = due[-1]

    async def _measure(self, scope: Scope) -> None:
        with for_org(scope.org, Feature.RECALIBRATION_WORKER, namespace=scope.namespace):
            try:
                await self._namespaces.measure_again(scope)
            except LoomError as error:  # one namespace's refusal must not keep the others
                _log.warning("namespace_not_recalibrated", reason=error.reason.value)
