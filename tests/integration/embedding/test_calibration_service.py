"""`loom.embedding.v1.CalibrationService` on a real server with the default model: who may call it, what it answers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest
from support.grpc import Deployment, bad_request, reason_of

from loom.embedding.v1 import calibration_pb2 as pb
from loom.embedding.v1 import calibration_pb2_grpc as pb_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import SystemClock
from loom_common.migrations import migrate
from loom_embedding.domain.calibration import Quantiles
from loom_embedding.settings import EmbeddingSettings
from loom_embedding.store.calibrations import CalibrationRepository, ClusterCalibration
from loom_embedding.wiring import build_calibration, open_model

# As this model's are; measuring them takes seconds.
QUANTILES = Quantiles(0.85, 0.92, 0.44, 0.58, 0.75, 0.25)
SIMILAR = [
    ("The rent is due on the first.", "Rent has to be paid by the first of the month."),
    ("Tom hates olives.", "Tom can't stand olives."),
    ("The office moved to Leeds.", "Our offices are in Leeds now."),
    ("She runs ten miles a week.", "Every week she runs ten miles."),
    ("The deploy is frozen until Monday.", "No deployments before Monday."),
]
DISTRACTORS = [
    ("The rent is due on the first.", "Penguins cannot fly."),
    ("Tom hates olives.", "The printer is out of toner."),
    ("The office moved to Leeds.", "Whisk the cream until stiff."),
]


@dataclass(slots=True)
class Running:
    deployment: Deployment
    stub: "pb_grpc.CalibrationServiceAsyncStub"

    def as_(self, *grants: str, **more: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.deployment.token(*grants, **more)}"),)


@pytest.fixture
async def running(deployment: Deployment, tmp_path: Path, clickhouse: ClickHouse) -> AsyncIterator[Running]:
    await migrate(clickhouse, "embedding", "loom_embedding")
    settings = EmbeddingSettings(LOOM_DATA_DIR=tmp_path)
    async with open_model(settings) as model:
        calibration = build_calibration(model, settings, clickhouse)
        measured = ClusterCalibration(QUANTILES, SystemClock().now(), version=1)
        await CalibrationRepository(clickhouse).publish(model.served.name, measured)
        await calibration.keeper.look()
        async with (
            deployment.serving(calibration.service, name="embedding") as server,
            grpc.aio.insecure_channel(server.address) as channel,
        ):
            yield Running(deployment, pb_grpc.CalibrationServiceStub(channel))


def pairs(texts: list[tuple[str, str]]) -> list[pb.TextPair]:
    return [pb.TextPair(one=one, other=other) for one, other in texts]


async def test_a_namespace_is_calibrated_by_its_administrator_shown_to_its_readers_and_told_to_services(
    running: Running,
) -> None:
    stub, viewer, admin = running.stub, running.as_("default:viewer"), running.as_("default:admin")
    before = (await stub.GetCalibration(pb.GetCalibrationRequest(), metadata=viewer)).calibration
    assert (before.source, before.model) == ("cluster", "local:minilm")
    assert (before.noise_floor, before.thresholds.conflict) == (0.27, 0.85)
    request = pb.CalibrateNamespaceRequest(similar=pairs(SIMILAR), distractors=pairs(DISTRACTORS))
    own = (await stub.CalibrateNamespace(request, metadata=admin)).calibration
    assert own.source == "namespace"
    assert own.calibration_hash != before.calibration_hash
    service = (running.deployment.credential("memory"),)
    told = await stub.GetThresholds(pb.GetThresholdsRequest(org="acme", namespace="default"), metadata=service)
    other = await stub.GetThresholds(pb.GetThresholdsRequest(org="acme", namespace="team"), metadata=service)
    assert (told.calibration, other.calibration) == (own, before)
    again = await stub.CalibrateNamespace(pb.CalibrateNamespaceRequest(reset=True), metadata=admin)
    assert again.calibration == before

    for metadata in (viewer, running.as_("default:writer"), running.as_("team:admin")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CalibrateNamespace(
                pb.CalibrateNamespaceRequest(namespace="default", reset=True), metadata=metadata
            )
        assert reason_of(caught.value) == "AUTH_INSUFFICIENT"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetThresholds(pb.GetThresholdsRequest(org="acme", namespace="default"), metadata=admin)
    assert reason_of(caught.value) == "AUTH_INSUFFICIENT"

    for bad in (
        pb.CalibrateNamespaceRequest(),
        pb.CalibrateNamespaceRequest(similar=pairs(SIMILAR[:4]), distractors=pairs(DISTRACTORS)),
        pb.CalibrateNamespaceRequest(similar=pairs(SIMILAR), distractors=pairs(DISTRACTORS[:2])),
        pb.CalibrateNamespaceRequest(similar=pairs(SIMILAR), distractors=pairs(DISTRACTORS), reset=True),
        pb.CalibrateNamespaceRequest(similar=pairs(SIMILAR), distractors=[pb.TextPair(one="x")] * 3),
        pb.CalibrateNamespaceRequest(similar=pairs([("a b", " a  b")] * 5), distractors=pairs(DISTRACTORS)),
        pb.CalibrateNamespaceRequest(similar=pairs([(" ", "\n")] * 5), distractors=pairs(DISTRACTORS)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CalibrateNamespace(bad, metadata=admin)
        assert reason_of(caught.value) == "INVALID_ARGUMENT"
        assert bad_request(caught.value).field_violations
