"""Which thresholds a search goes by: the namespace's calibration, else the model's, else this service's settings."""

import logging
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

import cachetools

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import LoomError
from loom_memory.app.embedding import ServedModel
from loom_memory.settings import MemorySettings

logger = logging.getLogger(__name__)

KEPT_S: Final = 60.0
"""How long the last answer holds while embedding is away."""

# An answer is asked for again after this; with what embedding itself keeps, a calibration serves within a minute.
_FRESH_S: Final = 10.0
_MAX_KEPT: Final = 4_096


class Tier(StrEnum):
    """Where thresholds come from, the most particular first."""

    NAMESPACE = "namespace"
    CLUSTER = "cluster"
    SETTINGS = "settings"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The gates in force. Units: cosine, -1 to 1.

    Attributes:
        tier: Where they come from.
        noise_floor: At or under it two texts are unrelated.
        abstain: A search whose best row lies under it answers nothing.
        query_rewrite: A search whose best row lies under it may try the query in other words.
        hyde_fallback: A search whose best row lies under it may look for what an answer would look like.
        rerank_skip: A search whose best row lies above it is not reranked.
        conflict: Two memories at or above it may contradict each other.
        duplicate: Two memories at or above it may say the same.
        calibration_hash: Equal wherever the same calibration is served; empty for the settings.
    """

    tier: Tier
    noise_floor: float
    abstain: float
    query_rewrite: float
    hyde_fallback: float
    rerank_skip: float
    conflict: float
    duplicate: float
    calibration_hash: str = ""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What embedding answered: the model, and its thresholds where something is calibrated."""

    model: str
    thresholds: Thresholds | None


class ThresholdsPort(Protocol):
    """Tells what is calibrated."""

    async def calibrated(self, scope: Scope) -> Calibrated:
        """Returns what is in force for a namespace.

        Raises:
            LoomError: Embedding does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Kept:
    calibrated: Calibrated
    at: float


class ThresholdsInForce:
    """Resolves the tiers. Keeps what embedding answered for a minute, so that a search always has thresholds."""

    def __init__(self, port: ThresholdsPort, settings: MemorySettings, clock: Clock) -> None:
        self._port = port
        self._settings = settings
        self._clock = clock
        self._kept: cachetools.LRUCache[Scope, _Kept] = cachetools.LRUCache(_MAX_KEPT)

    async def of(self, scope: Scope, served: ServedModel) -> Thresholds:
        """Returns the thresholds of a namespace for the served model. Never raises but for cancellation."""
        calibrated = await self._calibrated(scope)
        if calibrated is None or calibrated.thresholds is None or calibrated.model != served.name:
            return self._from_settings(served)
        # A floor that is set by hand holds against every calibration; else none takes it below the model's own.
        floor = self._settings.min_similarity
        if floor is None:
            floor = max(served.noise_floor, calibrated.thresholds.noise_floor)
        return replace(calibrated.thresholds, noise_floor=floor)

    async def noise_floor(self, scope: Scope, served: ServedModel) -> float:
        """Returns the cosine at or under which two texts are unrelated."""
        return (await self.of(scope, served)).noise_floor

    async def _calibrated(self, scope: Scope) -> Calibrated | None:
        kept = self._kept.get(scope)
        age_s = self._clock.monotonic_s() - kept.at if kept is not None else KEPT_S
        if kept is not None and age_s < _FRESH_S:
            return kept.calibrated
        try:
            found = await self._port.calibrated(scope)
        except LoomError as error:
            logger.debug("thresholds_unread", extra={"reason": error.reason.value})
            return kept.calibrated if kept is not None and age_s < KEPT_S else None
        self._kept[scope] = _Kept(found, self._clock.monotonic_s())
        return found

    def _from_settings(self, served: ServedModel) -> Thresholds:
        settings = self._settings
        return Thresholds(
            tier=Tier.SETTINGS,
            noise_floor=served.noise_floor if settings.min_similarity is None else settings.min_similarity,
            abstain=settings.abstain_threshold,
            query_rewrite=settings.query_rewrite_threshold,
            hyde_fallback=settings.hyde_fallback_threshold,
            rerank_skip=settings.rerank_skip_above,
            conflict=settings.conflict_threshold,
            duplicate=settings.duplicate_threshold,
        )
