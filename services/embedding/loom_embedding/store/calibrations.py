"""The tables `embedder_calibration` and `namespace_calibration_result`: what thresholds are derived from."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Column, Row, Table, own_write_reads
from loom_embedding.domain.calibration import Pair, Quantiles

_QUANTILES: Final = tuple(Column(field.name, "Float64") for field in fields(Quantiles))
_PAIRS: Final = ("similar_one", "similar_other", "distractor_one", "distractor_other")
_MODEL: Final = Column("model", "String")
_CALIBRATED_AT: Final = Column("calibrated_at", "DateTime64(3, 'UTC')")
_VERSIONED: Final = Column("version", "UInt64")

CLUSTER_TABLE: Final = Table("embedder_calibration", (_MODEL, *_QUANTILES, _CALIBRATED_AT, _VERSIONED))
NAMESPACE_TABLE: Final = Table(
    "namespace_calibration_result",
    (
        Column("org", "LowCardinality(String)"),
        Column("namespace", "LowCardinality(String)"),
        _MODEL,
        *_QUANTILES,
        *(Column(name, "Array(String)") for name in _PAIRS),
        _CALIBRATED_AT,
        Column("tombstoned_at", "Nullable(DateTime64(3, 'UTC'))"),
        _VERSIONED,
    ),
)

_CLUSTER: Final = """SELECT paraphrase_p50, paraphrase_p75, question_p10, question_p25, question_p75, distractor_p90,
    calibrated_at, version
FROM embedder_calibration FINAL WHERE model = {model:String} ORDER BY version DESC LIMIT 1"""

_NAMESPACE: Final = """SELECT org, namespace, model,
    paraphrase_p50, paraphrase_p75, question_p10, question_p25, question_p75, distractor_p90,
    similar_one, similar_other, distractor_one, distractor_other, calibrated_at, version
FROM namespace_calibration_result FINAL
WHERE org = {org:String} AND namespace = {namespace:String} AND tombstoned_at IS NULL
ORDER BY version DESC LIMIT 1"""

# Without the pairs, which may be long and which no search needs.
_MEASURED: Final = """SELECT model,
    paraphrase_p50, paraphrase_p75, question_p10, question_p25, question_p75, distractor_p90, calibrated_at
FROM namespace_calibration_result FINAL
WHERE org = {org:String} AND namespace = {namespace:String} AND tombstoned_at IS NULL
ORDER BY version DESC LIMIT 1"""

_VERSION: Final = """SELECT version FROM namespace_calibration_result FINAL
WHERE org = {org:String} AND namespace = {namespace:String} ORDER BY version DESC LIMIT 1"""

# Those of another model first come due with the change of the model, the others with time.
_DUE: Final = """SELECT org, namespace FROM namespace_calibration_result FINAL
WHERE tombstoned_at IS NULL AND (model != {model:String} OR calibrated_at < {before:DateTime64(3, 'UTC')})
    AND (org, namespace) > ({after_org:String}, {after_namespace:String})
ORDER BY org, namespace LIMIT {limit:UInt32}"""

_FORGET: Final = """ALTER TABLE namespace_calibration_result DELETE
WHERE org = {org:String} AND namespace = {namespace:String} AND version < {version:UInt64}"""


@dataclass(frozen=True, slots=True)
class ClusterCalibration:
    """The calibration of one model."""

    quantiles: Quantiles
    calibrated_at: datetime
    version: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured for one namespace, and with which model."""

    model: str
    quantiles: Quantiles
    calibrated_at: datetime


@dataclass(frozen=True, slots=True)
class NamespaceCalibration:
    """The calibration of one namespace, and the pairs that it was made from."""

    scope: Scope
    model: str
    quantiles: Quantiles
    similar: tuple[Pair, ...]
    distractors: tuple[Pair, ...]
    calibrated_at: datetime
    version: int


class CalibrationRepository:
    """Owns both tables."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def cluster(self, model: str) -> ClusterCalibration | None:
        """Returns the calibration of a model, or None where it was never calibrated."""
        row = (await self._ch.query(_CLUSTER, {"model": model}, settings=self._reads)).first()
        if row is None:
            return None
        *quantiles, calibrated_at, version = row
        return ClusterCalibration(Quantiles(*quantiles), calibrated_at, version)

    async def publish(self, model: str, calibration: ClusterCalibration) -> None:
        """Makes it the calibration of a model."""
        row = (model, *astuple(calibration.quantiles), calibration.calibrated_at, calibration.version)
        await self._ch.insert(CLUSTER_TABLE, [row])

    async def namespace(self, scope: Scope) -> NamespaceCalibration | None:
        """Returns the calibration of a namespace, or None where it has none of its own."""
        row = (await self._ch.query(_NAMESPACE, _scope(scope), settings=self._reads)).first()
        return None if row is None else _namespace_from_row(row)

    async def measured(self, scope: Scope) -> Measured | None:
        """Returns what was measured for a namespace, or None where it has no calibration of its own."""
        row = (await self._ch.query(_MEASURED, _scope(scope), settings=self._reads)).first()
        if row is None:
            return None
        model, *quantiles, calibrated_at = row
        return Measured(model, Quantiles(*quantiles), calibrated_at)

    async def namespace_version(self, scope: Scope) -> int:
        """Returns the version of the namespace's row, a removed one included; 0 where there is none."""
        row = (await self._ch.query(_VERSION, _scope(scope), settings=self._reads)).first()
        return 0 if row is None else int(row[0])

    async def keep(self, calibration: NamespaceCalibration) -> None:
        """Makes it the calibration of its namespace."""
        row = (
            calibration.scope.org,
            calibration.scope.namespace,
            calibration.model,
            *astuple(calibration.quantiles),
            [pair.one for pair in calibration.similar],
            [pair.other for pair in calibration.similar],
            [pair.one for pair in calibration.distractors],
            [pair.other for pair in calibration.distractors],
            calibration.calibrated_at,
            None,
            calibration.version,
        )
        await self._ch.insert(NAMESPACE_TABLE, [row])

    async def remove(self, scope: Scope, now: datetime, version: int) -> None:
        """Removes the calibration of a namespace, and then what its pairs said from the disk."""
        nothing = [0.0] * len(_QUANTILES)
        row = (scope.org, scope.namespace, "", *nothing, [], [], [], [], now, now, version)
        await self._ch.insert(NAMESPACE_TABLE, [row])
        await self._ch.command(_FORGET, {**_scope(scope), "version": version})

    async def due(self, model: str, before: datetime, after: Scope, limit: int) -> list[Scope]:
        """Returns namespaces behind `after`, in order, that were calibrated before a time or with another model."""
        rows = await self._ch.query(
            _DUE,
            {
                "model": model,
                "before": before,
                "after_org": after.org,
                "after_namespace": after.namespace,
                "limit": limit,
            },
            settings=self._reads,
        )
        return [Scope(org, namespace) for org, namespace in rows]


def _scope(scope: Scope) -> dict[str, object]:
    return {"org": scope.org, "namespace": scope.namespace}


def _namespace_from_row(row: Row) -> NamespaceCalibration:
    org, namespace, model, *rest = row
    quantiles, (similar_one, similar_other, distractor_one, distractor_other, at, version) = rest[:6], rest[6:]
    return NamespaceCalibration(
        scope=Scope(org, namespace),
        model=model,
        quantiles=Quantiles(*quantiles),
        similar=_pairs(similar_one, similar_other),
        distractors=_pairs(distractor_one, distractor_other),
        calibrated_at=at,
        version=version,
    )


def _pairs(one: Sequence[str], other: Sequence[str]) -> tuple[Pair, ...]:
    return tuple(Pair(*pair) for pair in zip(one, other, strict=True))
