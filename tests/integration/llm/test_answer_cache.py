"""The tables of the cache of answers, on the real engine: what they keep, when they forget, what an erasure leaves."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from loom_common.clickhouse import ClickHouse
from loom_common.migrations import migrate
from loom_llm.domain.messages import LLMResult
from loom_llm.store.answers import AnswerRepository, Found, KeptAnswer, Place

# Of this day: the engine removes rows by its own clock.
NOW = datetime.now(UTC).replace(microsecond=0)
PLACE = Place("acme", "gpt-6-luna", "k" * 64)
RESULT = LLMResult(
    "Zoë says: Paris.", "openai", "gpt-6-luna-2026-09-22", input_tokens=1000, output_tokens=100,
    cached_input_tokens=500, cache_write_tokens=20,
)  # fmt: skip
ROW = KeptAnswer(
    PLACE, RESULT, ("team", "home"), ("k1", "k2"), ("consolidated", "src:k9"), NOW, NOW + timedelta(days=7), 1
)


@pytest.fixture
async def table(clickhouse: ClickHouse) -> AnswerRepository:
    await migrate(clickhouse, "llm", "loom_llm")
    return AnswerRepository(clickhouse)


async def count(ch: ClickHouse) -> int:
    return int((await ch.query("SELECT count() FROM llm_response_cache")).scalar())


async def test_an_answer_comes_back_whole_until_its_time_is_over_and_the_newest_counts(
    table: AnswerRepository,
) -> None:
    await table.keep(ROW)
    await table.keep(replace(ROW, result=replace(RESULT, text="Newer."), version=3))
    await table.keep(replace(ROW, result=replace(RESULT, text="Older."), version=2))
    assert await table.read(PLACE, NOW, 5.0) == Found(replace(RESULT, text="Newer.", from_cache=True), ROW.expires_at)
    assert await table.read(PLACE, NOW + timedelta(days=7), 5.0) is None
    for other in (replace(PLACE, org="globex"), replace(PLACE, model="gpt-6-sol"), replace(PLACE, key="x")):
        assert await table.read(other, NOW, 5.0) is None


async def test_an_erasure_takes_every_version_off_the_disk_of_what_a_key_or_tag_is_on(
    table: AnswerRepository, clickhouse: ClickHouse
) -> None:
    await table.keep(ROW)
    await table.keep(replace(ROW, version=2))
    await table.keep(replace(ROW, place=replace(PLACE, key="other"), window_keys=("k3",), tags=()))
    for org, namespace, keys, tags in (
        ("globex", "team", ["k1"], ["consolidated"]),
        ("acme", "elsewhere", ["k1"], ["consolidated"]),
        ("acme", "team", ["k9", "src:k9"], ["k1", "src:k1"]),
        ("acme", "team", [], []),
    ):
        assert await table.erase(org, namespace, keys, tags) == 0
    assert await table.erase("acme", "home", ["k2", "k8"], []) == 1
    assert await count(clickhouse) == 1
    assert await table.erase("acme", "team", ["k3"], ["src:k9"]) == 1
    assert await count(clickhouse) == 0


async def test_one_place_is_forgotten_and_what_was_erased_since_is_known(
    table: AnswerRepository, clickhouse: ClickHouse
) -> None:
    await table.keep(ROW)
    await table.keep(replace(ROW, place=replace(PLACE, key="other")))
    await table.forget(PLACE)
    assert await count(clickhouse) == 1
    await table.mark_erased("acme", "team", ["m1", "m2"], NOW)
    await table.mark_erased("globex", "team", ["m3"], NOW)
    assert await table.erased("acme", NOW) == {("team", "m1"), ("team", "m2")}
    assert await table.erased("acme", NOW + timedelta(milliseconds=1)) == set()
