"""What a namespace is counted to hold, and what happened in it."""

from datetime import UTC, datetime, timedelta

import pytest
from support.memory import MemoryHarness

from loom_common.call import Scope
from loom_common.clock import FakeClock
from loom_common.errors import InvalidArgument
from loom_memory.inventory.app.inventories import Inventories
from loom_memory.inventory.domain.counts import BY, Inventory
from loom_memory.inventory.store.counts import NamespaceCounts

HOUR = timedelta(hours=1)


def inventories(memory: MemoryHarness, at: datetime | None = None, *, recorded: bool = True) -> Inventories:
    return Inventories(NamespaceCounts(memory.ch), FakeClock(at or datetime.now(UTC)), recorded=recorded)


def group(inventory: Inventory, by: str) -> tuple[tuple[tuple[str, int], ...], int, int]:
    (names,) = [names for names in inventory.groups if names.by == by]
    return names.counts, names.names, names.total


async def filled(memory: MemoryHarness) -> None:
    await memory.set("billing:vat", "VAT is 21 %.", kind="fact", tags=("tax", "eu"), agent="bot")
    await memory.set("billing:currency", "Invoices are in euro.", kind="fact", agent="bot", pinned=True)
    await memory.set("ana-drink", "Ana drinks tea.", user_id="ana", session_id="s1", kind="preference", tags=("tax",))
    await memory.set("billing:currency", "Invoices are in pounds.", kind="fact", agent="bot", pinned=True)
    await memory.set("gone", "This goes.", kind="event")
    await memory.delete("gone")
    foreign = Scope("umbra", "team")
    await memory.set("billing:vat", "Theirs.", scope=foreign, kind="secretkind")
    await memory.set("billing:vat", "Of another namespace.", scope=Scope("acme", "other"), kind="otherkind")


async def test_each_live_memory_of_the_namespace_is_counted_once(memory: MemoryHarness) -> None:
    await filled(memory)
    counted = await inventories(memory).inventory(memory.scope, (), 20)
    totals = counted.totals
    assert (totals.memories, totals.users, totals.sessions, totals.agents, totals.pinned) == (3, 1, 1, 1, 1)
    assert totals.first_write_at is not None
    assert totals.last_write_at is not None
    assert totals.first_write_at <= totals.last_write_at
    assert group(counted, "kind") == ((("fact", 2), ("preference", 1)), 2, 3)
    assert group(counted, "tag") == ((("tax", 2), ("eu", 1)), 2, 3)
    assert group(counted, "key_prefix") == ((("billing", 2), ("ana", 1)), 2, 3)
    assert group(counted, "user") == ((("", 2), ("ana", 1)), 2, 3)
    assert group(counted, "age") == ((("1 day", 3),), 1, 3)
    assert [names.by for names in counted.groups] == [by for by in BY if not by.startswith("document")]


async def test_names_beyond_the_limit_are_counted_and_not_shown(memory: MemoryHarness) -> None:
    await filled(memory)
    counted = await inventories(memory).inventory(memory.scope, ("kind", "tag"), 1)
    assert [names.by for names in counted.groups] == ["kind", "tag"]
    assert group(counted, "kind") == ((("fact", 2),), 2, 3)
    assert (await inventories(memory).inventory(memory.scope, (), 0)).groups == ()
    later = inventories(memory, datetime.now(UTC) + timedelta(days=40))
    assert group(await later.inventory(memory.scope, ("age",), 20), "age") == ((("90 days", 3),), 1, 3)


async def test_an_empty_namespace_holds_nothing(memory: MemoryHarness) -> None:
    counted = await inventories(memory).inventory(Scope("acme", "nobody's"), (), 20)
    assert (counted.totals.memories, counted.totals.documents, counted.totals.document_bytes) == (0, 0, 0)
    assert (counted.totals.first_write_at, counted.groups) == (None, ())


@pytest.mark.parametrize("by", ["value", "kind'", "", "user_id"])
async def test_nothing_else_can_be_counted_by(memory: MemoryHarness, by: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await inventories(memory).inventory(memory.scope, (by,), 20)
    assert [violation.field for violation in caught.value.fields] == ["by"]


async def test_writers_are_told_with_what_was_new_and_what_replaced_another(memory: MemoryHarness) -> None:
    await filled(memory)
    now = datetime.now(UTC)
    activity = await inventories(memory).activity(memory.scope, now - HOUR, now + HOUR, 50)
    told = [(writer.actor, writer.agent, writer.new, writer.rewritten) for writer in activity.writers]
    assert told[0] == ("human:test", "bot", 2, 1)
    assert (activity.shown, activity.conflicts_resolved) == (0, 0)
    assert (await inventories(memory).activity(memory.scope, now - 2 * HOUR, now - HOUR, 50)).writers == ()
    unrecorded = await inventories(memory, recorded=False).activity(memory.scope, now - HOUR, now + HOUR, 1)
    assert (unrecorded.shown, len(unrecorded.writers)) == (None, 1)
