"""Calibration over the real engine: adoption, publishing, tiers, the weekly worker."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from loom_common.attribution import Kind
from loom_common.call import Scope, current
from loom_common.clickhouse import ClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clock import FakeClock
from loom_common.errors import BackendUnavailable, InvalidArgument, ProviderFailed
from loom_common.leases import Leases
from loom_common.migrations import migrate
from loom_common.status import FixedStatus
from loom_embedding.app.calibration import NAMESPACE_KEPT_S, Calibrations
from loom_embedding.app.calibration_status import CalibrationStatus
from loom_embedding.app.namespace_calibration import NamespaceCalibrations
from loom_embedding.app.probe import Probe
from loom_embedding.app.shared_cache import Purpose, SharedCache
from loom_embedding.domain.calibration import Corpora, Pair
from loom_embedding.domain.embedder import ServedModel, Vector
from loom_embedding.domain.thresholds import Tier
from loom_embedding.settings import EmbeddingSettings
from loom_embedding.store.calibrations import CalibrationRepository
from loom_embedding.store.vectors import VectorRepository
from loom_embedding.wiring import build_calibration, open_model, open_shared_cache
from loom_embedding.workers.calibration import CalibrationKeeper
from loom_embedding.workers.recalibration import LEASE, Recalibration

SCOPE = Scope("acme", "team")
SIMILAR = [Pair(f"0.9:s{number}", f"s{number}") for number in range(5)]
DISTRACTORS = [Pair(f"0.3:d{number}", f"d{number}") for number in range(3)]
CORPORA = Corpora(
    (Pair("0.8:p", "p"), Pair("0.9:q", "q")),
    (Pair("0.5:r", "r"), Pair("0.6:t", "t")),
    (Pair("0.1:u", "u"), Pair("0.2:v", "v")),
)


class Angles:
    """Embeds `0.9:x` at the cosine 0.9 to every text without a number, plus what the test adds to all."""

    model_name = "angles"
    dim = 2

    def __init__(self) -> None:
        self.more = 0.0
        self.failure: Exception | None = None
        self.batches: list[tuple[Kind | None, str, int]] = []

    async def embed(self, text: str) -> Vector:
        raise AssertionError("a probe takes the path of stored texts")

    async def embed_many(self, texts: Sequence[str]) -> list[Vector]:
        attribution = current().attribution
        self.batches.append((attribution and attribution.kind, attribution.org if attribution else "-", len(texts)))
        if self.failure is not None:
            raise self.failure
        cosines = [float(text.partition(":")[0]) + self.more if ":" in text else 1.0 for text in texts]
        return [np.asarray([cosine, (1 - cosine**2) ** 0.5], dtype=np.float32) for cosine in cosines]


class Replica:
    """One process's calibration over a database."""

    def __init__(
        self, ch: ClickHouse, clock: FakeClock, *, enabled: bool = True, provider: str = "openai", name: str = "angles"
    ) -> None:
        self.embedder = Angles()
        self.served = ServedModel(name, 2, provider, 256, 2, noise_floor=0.15)
        self.rows = CalibrationRepository(ch)
        probe = Probe(self.embedder, CORPORA)
        self.calibrations = Calibrations(self.rows, probe, self.served, clock=clock, enabled=enabled)
        self.namespaces = NamespaceCalibrations(self.rows, probe, self.served, self.calibrations, clock)
        self.keeper = CalibrationKeeper(self.calibrations, 60)
        leases = Leases(ch, "embedding")
        self.worker = Recalibration(self.rows, self.calibrations, self.namespaces, self.served, leases, clock)


@pytest.fixture(scope="module")
def clickhouse_database(clickhouse_engine: EmbeddedEngine) -> Iterator[str]:
    """One database for all tests here; making its tables takes longer than a test."""
    yield "calibrations"
    handle = clickhouse_engine.open_handle()
    handle.execute("DROP DATABASE IF EXISTS calibrations SYNC")
    handle.close()


@pytest.fixture
async def ch(clickhouse: ClickHouse) -> ClickHouse:
    """Its tables, empty."""
    await migrate(clickhouse, "embedding", "loom_embedding")
    for table in ("embedding_cache", "embedder_calibration", "namespace_calibration_result"):
        await clickhouse.command(f"TRUNCATE TABLE {table}")
    return clickhouse


@pytest.fixture
def clock() -> FakeClock:
    # Now, and not a fixed day: the engine removes rows by its own clock.
    return FakeClock(datetime.now(UTC).replace(microsecond=0))


async def test_the_first_replica_publishes_and_the_others_adopt_without_a_probe(
    ch: ClickHouse, clock: FakeClock
) -> None:
    first, second = Replica(ch, clock), Replica(ch, clock)
    assert (first.calibrations.cluster.tier, first.calibrations.cluster.noise_floor) == (Tier.SETTINGS, 0.15)
    await first.keeper.look()
    await second.keeper.look()
    mine, theirs = first.calibrations.cluster, second.calibrations.cluster
    assert mine == theirs
    assert mine.tier is Tier.CLUSTER
    assert mine.noise_floor == pytest.approx(0.21)  # 0.19, between 0.1 and 0.2, and 0.02
    assert mine.digest
    assert second.embedder.batches == []
    assert {(kind, org) for kind, org, _ in first.embedder.batches} == {(Kind.SYSTEM, "")}
    assert max(size for _, _, size in first.embedder.batches) <= 8


async def test_replicas_that_start_at_once_agree_at_their_next_look(ch: ClickHouse, clock: FakeClock) -> None:
    replicas = [Replica(ch, clock) for _ in range(3)]
    for number, replica in enumerate(replicas):
        replica.embedder.more = number / 100
    await asyncio.gather(*(replica.keeper.look() for replica in replicas))
    for replica in replicas:
        await replica.keeper.look()
    assert len({replica.calibrations.cluster.digest for replica in replicas}) == 1


@pytest.mark.parametrize("failure", [ProviderFailed("scripted"), RuntimeError("scripted")])
async def test_a_failed_probe_ends_nothing_and_is_tried_again_at_the_next_look(
    ch: ClickHouse, clock: FakeClock, failure: Exception
) -> None:
    replica = Replica(ch, clock)
    replica.embedder.failure = failure
    await replica.keeper.look()
    assert replica.calibrations.cluster.tier is Tier.SETTINGS
    replica.embedder.failure = None
    await replica.keeper.look()
    assert replica.calibrations.cluster.tier is Tier.CLUSTER


async def test_a_model_that_tells_nothing_apart_keeps_the_settings_and_is_not_asked_again(
    ch: ClickHouse, clock: FakeClock
) -> None:
    replica = Replica(ch, clock)
    replica.calibrations = Calibrations(
        replica.rows,
        Probe(replica.embedder, Corpora(CORPORA.distractors, CORPORA.questions, CORPORA.paraphrases)),
        replica.served,
        clock=clock,
    )
    await replica.calibrations.refresh()
    asked = len(replica.embedder.batches)
    await replica.calibrations.refresh()
    assert replica.calibrations.cluster.tier is Tier.SETTINGS
    assert len(replica.embedder.batches) == asked > 0


@pytest.mark.parametrize(("enabled", "provider"), [(False, "openai"), (True, "fake")])
async def test_a_fake_and_a_deployment_without_adaptivity_are_never_measured(
    ch: ClickHouse, clock: FakeClock, enabled: bool, provider: str
) -> None:
    replica = Replica(ch, clock, enabled=enabled, provider=provider)
    await replica.keeper.run()  # it has nothing to do and ends
    await replica.worker.run()
    assert replica.embedder.batches == []
    assert (await replica.calibrations.in_force(SCOPE)).tier is Tier.SETTINGS
    with pytest.raises(BackendUnavailable) as caught:
        await replica.namespaces.calibrate(SCOPE, SIMILAR, DISTRACTORS)
    assert caught.value.detail["reason"] in {"fake_embedder", "adaptive_thresholds_off"}


async def test_a_namespace_has_its_own_gates_on_every_replica_within_a_minute_and_can_give_them_up(
    ch: ClickHouse, clock: FakeClock
) -> None:
    one, other = Replica(ch, clock), Replica(ch, clock)
    await one.keeper.look()
    await other.keeper.look()
    assert (await other.calibrations.in_force(SCOPE)).tier is Tier.CLUSTER  # and keeps that for a while
    found = await one.namespaces.calibrate(SCOPE, SIMILAR, DISTRACTORS)
    assert (found.tier, found.noise_floor) == (Tier.NAMESPACE, pytest.approx(0.32))
    clock.advance(NAMESPACE_KEPT_S + 1)
    assert await other.calibrations.in_force(SCOPE) == found
    for elsewhere in (Scope("acme", "home"), Scope("globex", "team")):
        assert (await other.calibrations.in_force(elsewhere)).tier is Tier.CLUSTER
    assert (await one.namespaces.remove(SCOPE)).tier is Tier.CLUSTER
    held = await ch.query("SELECT sum(length(similar_one)) FROM namespace_calibration_result")
    assert held.scalar() == 0  # no older row keeps the pairs


async def test_similar_pairs_that_do_not_stand_out_are_refused_and_not_kept(ch: ClickHouse, clock: FakeClock) -> None:
    replica = Replica(ch, clock)
    await replica.keeper.look()
    with pytest.raises(InvalidArgument) as caught:
        await replica.namespaces.calibrate(SCOPE, DISTRACTORS * 2, SIMILAR)
    assert [violation.field for violation in caught.value.fields] == ["similar"]
    assert await replica.rows.namespace(SCOPE) is None


async def test_a_namespace_measured_with_another_model_has_the_served_models_gates(
    ch: ClickHouse, clock: FakeClock
) -> None:
    before, after = Replica(ch, clock), Replica(ch, clock, name="angles-2")
    await before.keeper.look()
    await before.namespaces.calibrate(SCOPE, SIMILAR, DISTRACTORS)
    await after.keeper.look()
    assert (await after.calibrations.in_force(SCOPE)).tier is Tier.CLUSTER
    await after.worker.take_turn()
    clock.advance(NAMESPACE_KEPT_S + 1)
    assert (await after.calibrations.in_force(SCOPE)).tier is Tier.NAMESPACE
    assert after.embedder.batches[-1][:2] == (Kind.JOB, "acme")


async def test_the_weekly_worker_measures_what_is_due_publishes_it_and_warns_of_a_drift(
    ch: ClickHouse, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    leader, other = Replica(ch, clock), Replica(ch, clock)
    await leader.keeper.look()
    await other.keeper.look()
    await leader.namespaces.calibrate(SCOPE, SIMILAR, DISTRACTORS)
    asked = len(leader.embedder.batches)
    await leader.worker.take_turn()
    assert len(leader.embedder.batches) == asked  # nothing is due yet
    before = leader.calibrations.cluster
    clock.advance(timedelta(days=7, seconds=1).total_seconds())
    leader.embedder.more = 0.06
    await leader.worker.take_turn()
    await other.keeper.look()
    assert other.calibrations.cluster == leader.calibrations.cluster != before
    assert (await leader.calibrations.in_force(SCOPE)).noise_floor == pytest.approx(0.38)
    assert "calibration_drift" in capsys.readouterr().out


async def test_only_the_holder_of_the_lease_measures(ch: ClickHouse, clock: FakeClock) -> None:
    replica = Replica(ch, clock)
    await replica.keeper.look()
    clock.advance(timedelta(days=8).total_seconds())
    before = await replica.rows.cluster("angles")
    async with Leases(ch, "embedding", "another").held(LEASE, 30, wait_s=5):
        await replica.worker.take_turn()
    assert await replica.rows.cluster("angles") == before
    await replica.worker.take_turn()
    assert await replica.rows.cluster("angles") != before


async def test_the_status_shows_the_gates_and_their_hash(ch: ClickHouse, clock: FakeClock) -> None:
    replica = Replica(ch, clock)
    status = CalibrationStatus(FixedStatus(), replica.calibrations)
    assert (await status.report()).facts["adaptive_thresholds.source"] == "settings"
    await replica.keeper.look()
    facts = (await status.report()).facts
    assert facts["adaptive_thresholds.source"] == "cluster"
    assert facts["adaptive_thresholds.calibration_hash"] == replica.calibrations.cluster.digest
    assert facts["adaptive_thresholds.noise_floor"] == "0.21"


async def test_a_vector_written_by_one_process_is_read_by_another_of_the_same_model_and_width(
    ch: ClickHouse, clock: FakeClock
) -> None:
    def cache(model: str = "m", dim: int = 2) -> SharedCache:
        return SharedCache(VectorRepository(ch, model, dim), model, max_chars=100, ttl_s=60, clock=clock)

    vector = np.asarray([0.6, 0.8], dtype=np.float32)
    writer = cache()
    writer.put("acme", Purpose.QUERY, {"dark mode": vector})
    writer.put("acme", Purpose.QUERY, {"dark mode": vector})
    await writer.aclose()
    found = await cache().get("acme", Purpose.QUERY, ["dark mode", "light mode"])
    assert list(found) == ["dark mode"]
    assert np.array_equal(found["dark mode"], vector)
    for stranger in (cache("n"), cache(dim=3)):
        assert await stranger.get("acme", Purpose.QUERY, ["dark mode"]) == {}
    assert await cache().get("globex", Purpose.QUERY, ["dark mode"]) == {}
    clock.advance(61)
    assert await cache().get("acme", Purpose.QUERY, ["dark mode"]) == {}


@pytest.mark.parametrize(("model", "warned"), [("text-embedding-3-small", False), ("text-embedding-3-large", True)])
async def test_a_start_without_adaptivity_warns_of_a_model_that_the_settings_were_not_tuned_for(
    ch: ClickHouse, capsys: pytest.CaptureFixture[str], model: str, warned: bool
) -> None:
    settings = EmbeddingSettings(LOOM_EMBEDDING_MODEL="fake-ngram-64", LOOM_ADAPTIVE_THRESHOLDS=False)
    async with open_model(settings) as opened:
        served = replace(opened.served, name=model, provider="openai")
        build_calibration(replace(opened, served=served), settings, ch)
    assert ("adaptive_thresholds_off" in capsys.readouterr().out) == warned


@pytest.mark.parametrize(
    ("provider", "max_chars", "shares"),
    [("openai", None, True), ("openai", 0, False), ("local", None, False), ("local", 100, True), ("fake", None, False)],
)
async def test_vectors_are_shared_where_a_provider_is_far_or_the_setting_says_so(
    ch: ClickHouse, provider: str, max_chars: int | None, shares: bool
) -> None:
    settings = EmbeddingSettings(LOOM_EMBEDDING_CACHE_SHARED_MAX_CHARS=max_chars)
    served = ServedModel("m", 2, provider, 256, 2, noise_floor=0.2)
    assert isinstance(open_shared_cache(served, settings, ch), SharedCache) == shares
