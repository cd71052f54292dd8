"""Which thresholds a search goes by."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from loom.embedding.v1 import calibration_pb2 as pb
from loom.embedding.v1 import calibration_pb2_grpc as pb_grpc
from loom_common.call import Scope
from loom_common.channel import open_channel
from loom_common.clock import FakeClock
from loom_common.errors import BackendUnavailable
from loom_memory.app.embedding import ServedModel
from loom_memory.app.thresholds import (
    KEPT_S,
    Calibrated,
    Thresholds,
    ThresholdsInForce,
    Tier,
)
from loom_memory.app.thresholds_fake import FakeThresholds
from loom_memory.app.thresholds_grpc import GrpcThresholds
from loom_memory.settings import MemorySettings

SCOPE = Scope("acme", "team")
SERVED = ServedModel("m", 2, fake=False, noise_floor=0.2)
OWN = Thresholds(Tier.NAMESPACE, 0.26, 0.31, 0.44, 0.58, 0.74, 0.85, 0.92, "abc")


class Rig:
    def __init__(self, answer: Calibrated | None = None, **settings: float) -> None:
        self.clock = FakeClock()
        self.port = FakeThresholds(answer)
        self.thresholds = ThresholdsInForce(self.port, MemorySettings(**settings), self.clock)  # type: ignore[arg-type]  # by variable

    async def of(self, scope: Scope = SCOPE) -> Thresholds:
        return await self.thresholds.of(scope, SERVED)


async def test_what_is_calibrated_holds() -> None:
    assert await Rig(Calibrated("m", OWN)).of() == OWN


@pytest.mark.parametrize("answer", [Calibrated("m", None), Calibrated("another", OWN)])
async def test_without_a_calibration_of_the_served_model_the_settings_hold(answer: Calibrated) -> None:
    found = await Rig(answer, LOOM_CONFLICT_THRESHOLD=0.8, LOOM_DUPLICATE_THRESHOLD=0.9).of()
    assert (found.tier, found.noise_floor) == (Tier.SETTINGS, SERVED.noise_floor)
    assert (found.conflict, found.duplicate) == (0.8, 0.9)


@pytest.mark.parametrize("answer", [Calibrated("m", OWN), Calibrated("m", None)])
async def test_a_floor_that_is_set_by_hand_holds_against_all(answer: Calibrated) -> None:
    rig = Rig(answer, LOOM_MEMORY_SEARCH_MIN_SIMILARITY=0.1)
    assert (await rig.of()).noise_floor == await rig.thresholds.noise_floor(SCOPE, SERVED) == 0.1


async def test_an_answer_is_asked_for_once_in_ten_seconds_and_by_namespace() -> None:
    rig = Rig(Calibrated("m", OWN))
    for _ in range(3):
        await rig.of()
    await rig.of(Scope("acme", "home"))
    assert rig.port.asked == [SCOPE, Scope("acme", "home")]
    rig.clock.advance(11)
    await rig.of()
    assert len(rig.port.asked) == 3


async def test_the_last_answer_holds_for_a_minute_while_embedding_is_away_and_then_the_settings_do() -> None:
    rig = Rig(Calibrated("m", OWN))
    await rig.of()
    rig.port.failure = BackendUnavailable("scripted")
    rig.clock.advance(KEPT_S - 1)
    assert await rig.of() == OWN
    rig.clock.advance(2)
    assert (await rig.of()).tier is Tier.SETTINGS
    rig.port.failure = None
    assert await rig.of() == OWN


class Servicer(pb_grpc.CalibrationServiceServicer):
    def __init__(self) -> None:
        self.calibration = pb.Calibration(source="settings", model="m", noise_floor=0.2)
        self.asked: list[pb.GetThresholdsRequest] = []

    async def GetThresholds(self, request: pb.GetThresholdsRequest, context: Any) -> pb.GetThresholdsResponse:
        self.asked.append(request)
        return pb.GetThresholdsResponse(calibration=self.calibration)


@pytest.fixture
async def servicer_and_port() -> AsyncIterator[tuple[Servicer, GrpcThresholds]]:
    servicer = Servicer()
    server = grpc.aio.server()
    pb_grpc.add_CalibrationServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = open_channel(f"127.0.0.1:{port}")
    yield servicer, GrpcThresholds(channel)
    await channel.close()
    await server.stop(0)


async def test_the_service_is_asked_about_the_namespace_and_its_answer_is_read(
    servicer_and_port: tuple[Servicer, GrpcThresholds],
) -> None:
    servicer, port = servicer_and_port
    assert await port.calibrated(SCOPE) == Calibrated("m", None)
    assert servicer.asked == [pb.GetThresholdsRequest(org="acme", namespace="team")]
    gates = pb.Thresholds(
        noise_floor=0.26,
        abstain=0.31,
        query_rewrite=0.44,
        hyde_fallback=0.58,
        rerank_skip=0.74,
        conflict=0.85,
        duplicate=0.92,
    )
    servicer.calibration = pb.Calibration(
        source="namespace", model="m", noise_floor=0.26, thresholds=gates, calibration_hash="abc"
    )
    assert await port.calibrated(SCOPE) == Calibrated("m", OWN)
