"""Export and import over the real engine: nothing lost, nothing doubled, whatever a file holds."""

import asyncio
import json
import struct
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.bulk import ADMIN, BulkHarness, bulk_over, line

from loom_common.clock import FakeClock
from loom_common.conditional_writes import Claims
from loom_common.errors import InvalidArgument, LoomError, ProviderFailed
from loom_common.write_policy import Treatment, WritePolicy
from loom_memory.app.bulk import BulkPolicy
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.export import ExportQuery, MemoryExport
from loom_memory.domain.memory import Filter
from loom_memory.store.transfer import TransferRepository

THEN = datetime(2026, 11, 30, 11, 0, tzinfo=UTC)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def bulk(shared_bulk: BulkHarness) -> BulkHarness:
    return shared_bulk.fresh()


def reasons(outcomes: Sequence[Any]) -> list[str]:
    return [one.outcome.reason.value if isinstance(one.outcome, LoomError) else one.outcome.reason for one in outcomes]


async def fill(bulk: BulkHarness) -> None:
    await bulk.set("breakfast", "Ana drinks tea in the morning", tags=("food", "ana"), importance=0.0)
    await bulk.set("breakfast", "Ana drinks coffee in the morning", importance=1.0, pinned=True)
    await bulk.set("breakfast", "Ana drinks water", user_id="u1", session_id="s1", speaker="Ana", source="https://x/y")
    await bulk.set("m-0f", '日本語のメモ \n with lines, \u2028 and "quotes"', event_time=THEN, agent="a1")
    await bulk.set("old", "to be gone")
    await bulk.delete("old")
    await bulk.set("foreign", "of another organisation", scope=bulk.foreign)


async def test_an_import_of_an_export_exports_the_same_and_a_second_one_changes_nothing(bulk: BulkHarness) -> None:
    await fill(bulk)
    lines = await bulk.export()
    assert [json.loads(one)["key"] for one in lines] == ["breakfast", "breakfast", "m-0f"]
    assert all(outcome.outcome.stored for outcome in await bulk.load(lines))  # type: ignore[union-attr]
    assert await bulk.export(bulk.other) == lines
    own = f"org = '{bulk.scope.org}'"
    counts = [await bulk.count(table, own) for table in ("memory", "memory_versions", "memory_embeddings")]
    assert reasons(await bulk.load(lines)) == ["unchanged"] * 3
    assert counts == [await bulk.count(table, own) for table in ("memory", "memory_versions", "memory_embeddings")]
    assert [memory.content.value for memory in await bulk.history("breakfast", scope=bulk.other)] == [
        "Ana drinks coffee in the morning",
        "Ana drinks tea in the morning",
    ]
    assert len(await bulk.export(bulk.foreign)) == 1


async def test_an_export_is_one_moment_whatever_is_written_meanwhile(bulk: BulkHarness) -> None:
    for number in range(6):
        await bulk.set(f"k{number}", f"before {number}")
    export = MemoryExport(
        TransferRepository(bulk.ch), bulk.embedding, clock=bulk.core.clock, numbers=bulk.core.numbers, page_size=2
    )
    seen: list[bytes] = []
    cursors: list[str] = []
    async for part in export.run(bulk.scope, ExportQuery(Filter())):
        seen += part.lines
        cursors.append(part.cursor)
        if len(cursors) == 1:
            await bulk.set("k3", "after 3")
            await bulk.set("k2x", "new")
            await bulk.delete("k4")
    values = [json.loads(one)["value"] for one in seen]
    assert values == ["before 0", "before 1", "before 2", "before 3", "before 5"]
    # From the cursor of the first part on, still of that moment.
    rest = [
        one async for part in export.run(bulk.scope, ExportQuery(Filter(), cursor=cursors[0])) for one in part.lines
    ]
    assert seen[:2] + rest == seen
    with pytest.raises(InvalidArgument):
        await anext(export.run(bulk.scope, ExportQuery(Filter(user_id="u"), cursor=cursors[0])))


async def test_hostile_lines_are_refused_by_number_and_lose_no_others(bulk: BulkHarness) -> None:
    long = json.dumps({"key": "long", "value": "x" * 5_000_000}).encode()
    lines = [
        b"\xef\xbb\xbf" + line(key="bom", value="first with a mark"),
        line(key="crlf", value="ends as on Windows") + b"\r",
        b"",
        b'{"key": "cut", "value": "tru',
        b'{"value": "nul \x00"}',
        line(key="typed", value=5),
        long,
        b'{"cursor": "from an export"}',
        line(key="gone", value="its time is over", expires_at="2020-01-01"),
        line(key="good", value="last"),
    ]
    outcomes = await bulk.load(lines)
    assert [(one.line, reason) for one, reason in zip(outcomes, reasons(outcomes), strict=True)] == [
        (1, ""),
        (2, ""),
        (4, "MALFORMED_REQUEST"),
        (5, "MALFORMED_REQUEST"),
        (6, "MALFORMED_REQUEST"),
        (7, "INVALID_ARGUMENT"),
        (9, "expired"),
        (10, ""),
    ]
    assert {json.loads(one)["key"] for one in await bulk.export(bulk.other)} == {"bom", "crlf", "good"}


def given_vector(*numbers: float, model: str = "fake", dim: int = 32) -> dict[str, Any]:
    padded = [*numbers, *([0.0] * (32 - len(numbers)))]
    text = b64encode(struct.pack("<32f", *padded)).decode()
    return {"model": model, "dim": dim, "chunks": [{"start": 0, "end": 1, "vector": text}]}


async def test_vectors_are_taken_where_they_are_of_the_served_model_and_made_otherwise(bulk: BulkHarness) -> None:
    assert isinstance(bulk.embedding, FakeEmbedding)
    lines = [
        line(key="k-1", value="given", vectors=given_vector(1.0)),
        line(key="k-2", value="other model", vectors=given_vector(1.0, model="another")),
        line(key="k-3", value="bad", vectors=given_vector(float("nan"))),
    ]
    before = bulk.embedding.texts
    assert reasons(await bulk.load(lines)) == ["", "", "INVALID_ARGUMENT"]
    assert bulk.embedding.texts == before + 1
    shown = {json.loads(one)["key"]: json.loads(one)["vectors"] for one in await bulk.export(bulk.other)}
    assert shown["k-1"] == given_vector(1.0)
    assert shown["k-2"]["model"] == "fake"


async def test_an_import_over_other_content_makes_a_version_or_leaves_it(bulk: BulkHarness) -> None:
    await bulk.set("k1", "here before", scope=bulk.other)
    lines = [line(key="k1", value="from the file", version=9, updated_at="2020-01-01")]
    assert reasons(await bulk.load(lines, policy=BulkPolicy("human:x", skips_existing=True))) == ["exists"]
    assert reasons(await bulk.load(lines, policy=BulkPolicy("human:x", is_dry=True))) == [""]
    assert (await bulk.get("k1", scope=bulk.other)).content.value == "here before"  # type: ignore[union-attr]
    await bulk.load(lines)
    assert [(one.content.value, one.revision) for one in await bulk.history("k1", scope=bulk.other)] == [
        ("from the file", 2),
        ("here before", 1),
    ]


async def test_who_wrote_a_memory_is_kept_only_for_an_administrator(bulk: BulkHarness) -> None:
    lines = [line(key="k1", value="x", actor="human:boss", version=3)]
    await bulk.load(lines, policy=BulkPolicy("human:me"))
    found = await bulk.get("k1", scope=bulk.other)
    assert found is not None
    assert (found.actor, found.revision) == ("human:me", 3)
    await bulk.load([line(key="k2", value="x", actor="human:boss")], policy=ADMIN)
    assert (await bulk.get("k2", scope=bulk.other)).actor == "human:boss"  # type: ignore[union-attr]


async def test_the_same_key_twice_in_a_file_is_two_versions_in_order(bulk: BulkHarness) -> None:
    await bulk.load([line(key="k", value="one"), line(key="k", value="two"), line(key="k", value="two")])
    assert [one.content.value for one in await bulk.history("k", scope=bulk.other)] == ["two", "one"]


async def test_a_failure_halfway_loses_nothing_and_the_import_can_be_repeated(bulk: BulkHarness) -> None:
    assert isinstance(bulk.embedding, FakeEmbedding)
    lines = [line(key=f"k{number}", value=f"text {number}") for number in range(30)]
    bulk.embedding.poison = {"7"}
    outcomes = await bulk.load(lines, batch=10)
    assert [one.line for one in outcomes if isinstance(one.outcome, ProviderFailed)] == [8]
    bulk.embedding.poison = set()
    assert reasons(await bulk.load(lines, batch=10)).count("unchanged") == 29
    assert len(await bulk.export(bulk.other)) == 30


async def test_an_import_that_is_cancelled_leaves_whole_memories(bulk: BulkHarness) -> None:
    lines = [line(key=f"k{number}", value=f"text {number}") for number in range(40)]

    async def batches() -> AsyncIterator[Sequence[bytes]]:
        for first in range(0, 40, 10):
            yield lines[first : first + 10]

    imported = bulk.parts.imports.run(bulk.other, batches(), ADMIN, lambda identity: identity)
    await anext(imported)
    await imported.aclose()
    found = await bulk.export(bulk.other)
    assert len(found) >= 10
    assert all("vectors" in json.loads(one) for one in found)
    assert all(reason in ("", "unchanged") for reason in reasons(await bulk.load(lines)))
    assert len(await bulk.export(bulk.other)) == 40


async def test_two_processes_that_import_the_same_keys_lose_none(bulk: BulkHarness) -> None:
    ch = bulk.ch
    first, second = [
        replace(await bulk_over(ch, claims=Claims(ch, "memory"), exclusive=False), other=bulk.other) for _ in range(2)
    ]
    one = [line(key=f"k{number}", value=f"first {number}") for number in range(12)]
    two = [line(key=f"k{number}", value=f"second {number}") for number in range(12)]
    outcomes = await asyncio.gather(first.load(one, batch=4), second.load(two, batch=4))
    assert [reason for each in outcomes for reason in reasons(each)] == [""] * 24
    for number in range(12):
        values = {memory.content.value for memory in await first.history(f"k{number}", scope=bulk.other)}
        assert values == {f"first {number}", f"second {number}"}


async def test_what_a_namespace_does_not_let_be_written_is_not_imported(bulk: BulkHarness) -> None:
    policy = WritePolicy(blocked_words=("forbidden",), personal=Treatment.OFF, secrets=Treatment.OFF)
    bulk = replace(await bulk_over(bulk.ch, policy=policy), other=bulk.other)
    outcomes = await bulk.load([line(key="a", value="a forbidden word"), line(key="b", value="fine")])
    assert reasons(outcomes) == ["blacklisted", ""]
    assert [json.loads(one)["key"] for one in await bulk.export(bulk.other)] == ["b"]


async def test_times_to_come_are_not_taken_from_a_file(bulk: BulkHarness) -> None:
    bulk = replace(await bulk_over(bulk.ch, clock=FakeClock(THEN)), other=bulk.other)
    later = (THEN + timedelta(days=1)).isoformat()
    await bulk.load([line(key="k", value="x", created_at=later, updated_at=later)])
    found = await bulk.get("k", scope=bulk.other)
    assert found is not None
    assert found.created_at == found.updated_at == THEN
