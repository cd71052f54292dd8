"""A namespace's own calibration: pairs of its texts that are alike, and pairs that are not."""

from collections.abc import Sequence
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock, MonotonicVersions
from loom_common.errors import BackendUnavailable, InvalidArgument
from loom_embedding.app.calibration import Calibrations, InForce
from loom_embedding.app.probe import Probe
from loom_embedding.domain.calibration import CalibrationUnusable, Pair, Quantiles, derive_thresholds
from loom_embedding.domain.embedder import ServedModel
from loom_embedding.store.calibrations import CalibrationRepository, NamespaceCalibration

FAKE_EMBEDDER: Final = "fake_embedder"
ADAPTIVE_OFF: Final = "adaptive_thresholds_off"
NOT_CALIBRATED: Final = "not_calibrated"


class NamespaceCalibrations:
    """Makes and removes the calibrations of namespaces."""

    def __init__(
        self,
        rows: CalibrationRepository,
        probe: Probe,
        served: ServedModel,
        calibrations: Calibrations,
        clock: Clock,
    ) -> None:
        self._rows = rows
        self._probe = probe
        self._served = served
        self._calibrations = calibrations
        self._clock = clock
        self._versions = MonotonicVersions(clock)

    async def calibrate(self, scope: Scope, similar: Sequence[Pair], distractors: Sequence[Pair]) -> InForce:
        """Measures the pairs, keeps both, and returns what is in force for the namespace from now on.

        Raises:
            BackendUnavailable: Nothing can be calibrated now; `detail.reason` says why.
            InvalidArgument: The similar pairs are no nearer than the distractors.
            LoomError: The model did not answer; nothing was kept.
        """
        cluster = self._cluster()
        quantiles = await self._probe.namespace(similar, distractors, cluster)
        try:
            derive_thresholds(quantiles)
        except CalibrationUnusable as error:
            raise InvalidArgument.of("similar", f"do not stand out from the distractors: {error}") from None
        await self._keep(scope, quantiles, tuple(similar), tuple(distractors))
        return await self._calibrations.in_force(scope)

    async def remove(self, scope: Scope) -> InForce:
        """Removes the namespace's calibration and its pairs, and returns what is in force from now on."""
        version = self._versions.next(after=await self._rows.namespace_version(scope))
        await self._rows.remove(scope, self._clock.now(), version)
        self._calibrations.forget(scope)
        return await self._calibrations.in_force(scope)

    async def measure_again(self, scope: Scope) -> None:
        """Measures the pairs of a namespace with the served model; does nothing where there are none any more.

        Pairs that this model cannot tell apart are kept with what was measured: the model's calibration holds then.

        Raises:
            LoomError: The store or the model did not answer.
        """
        kept = await self._rows.namespace(scope)
        if kept is None:
            return
        quantiles = await self._probe.namespace(kept.similar, kept.distractors, self._cluster())
        if await self._rows.namespace_version(scope) == kept.version:  # else it was calibrated or removed meanwhile
            await self._keep(scope, quantiles, kept.similar, kept.distractors)

    async def _keep(
        self, scope: Scope, quantiles: Quantiles, similar: tuple[Pair, ...], distractors: tuple[Pair, ...]
    ) -> None:
        version = self._versions.next(after=await self._rows.namespace_version(scope))
        await self._rows.keep(
            NamespaceCalibration(scope, self._served.name, quantiles, similar, distractors, self._clock.now(), version)
        )
        self._calibrations.forget(scope)

    def _cluster(self) -> Quantiles:
        if self._served.fake:
            raise _unavailable("The embedder is a fake, whose cosines mean nothing.", FAKE_EMBEDDER)
        if not self._calibrations.enabled:
            raise _unavailable("LOOM_ADAPTIVE_THRESHOLDS is off, so the settings decide.", ADAPTIVE_OFF)
        cluster = self._calibrations.quantiles
        if cluster is None:
            raise _unavailable("The embedder is not calibrated yet. Try again in a minute.", NOT_CALIBRATED)
        return cluster


def _unavailable(message: str, reason: str) -> BackendUnavailable:
    return BackendUnavailable(message, detail={"reason": reason})
