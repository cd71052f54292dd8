"""What was deleted or has expired long ago is removed from the store, and nothing else."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.bulk import BulkHarness, bulk_over

from loom_common.clock import FakeClock
from loom_common.leases import Lease
from loom_memory.settings import MemorySettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

START = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
TABLES = ("memory", "memory_versions", "memory_embeddings", "memory_signals")


class Held(Lease):
    """A lease that nobody takes."""

    def __init__(self) -> None:
        self.renewals = 0

    async def renew(self) -> None:
        """See `Lease.renew`."""
        self.renewals += 1


async def test_what_is_over_is_removed_after_its_time_with_everything_of_it(shared_bulk: BulkHarness) -> None:
    own, clock = shared_bulk.fresh(), FakeClock(START)
    settings = MemorySettings.load({"LOOM_PURGE_AFTER_DAYS": "10"})
    bulk = replace(await bulk_over(own.ch, clock=clock, settings=settings), scope=own.scope)
    await bulk.set("deleted", "one")
    await bulk.set("deleted", "two")
    await bulk.set("again", "before")
    await bulk.set("expires", "soon", expires_at=START + timedelta(hours=1))
    await bulk.set("stays", "old version")
    await bulk.set("stays", "new version")
    for key in ("deleted", "again"):
        clock.advance(1)
        await bulk.delete(key)
    await bulk.set("again", "after")
    columns = "org, namespace, memory_key, user_id, session_id, signal, recorded_at"
    await bulk.ch.command(
        f"INSERT INTO memory_signals ({columns}) SELECT org, namespace, memory_key, user_id, session_id, 'x', "
        f"updated_at FROM memory FINAL WHERE org = '{bulk.scope.org}'"
    )
    clock.advance(86_400 * 9)
    assert await bulk.parts.purge.purge(Held()) == 0
    clock.advance(86_400 * 2)
    lease = Held()
    assert await bulk.parts.purge.purge(lease) == 2
    assert lease.renewals
    for table in TABLES:
        rows = await bulk.ch.query(
            f"SELECT DISTINCT memory_key FROM {table} WHERE org = {{org:String}} ORDER BY memory_key",
            {"org": bulk.scope.org},
        )
        assert [key for (key,) in rows] == ["again", "stays"], table
    assert [one.content.value for one in await bulk.history("stays")] == ["new version", "old version"]
    found = await bulk.get("again")
    assert found is not None
    assert found.content.value == "after"
    assert await bulk.parts.purge.purge(Held()) == 0
