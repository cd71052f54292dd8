"""A pack over sources that answer, fail and hang."""

import asyncio
import time

import pytest

from loom_common.call import Call, Scope, bind
from loom_common.errors import EmbedTimeout
from loom_memory.context.app import packing
from loom_memory.context.app.o200k import O200kTokens, load
from loom_memory.context.app.packing import ContextPacker, PackRequest
from loom_memory.context.app.sources_fake import FakeSource
from loom_memory.context.domain.entries import Entry
from loom_memory.context.domain.sections import Mode, Section

SCOPE = Scope("acme", "team")


def entry(text: str) -> Entry:
    return Entry(text, text)


async def test_every_failing_section_is_empty_and_names_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_SECTION_TIMEOUT_S", 0.01)

    hangs = FakeSource({Section.PROCEDURES: []})
    hangs.gate.clear()
    packer = ContextPacker(
        [
            FakeSource({Section.PROFILE: [entry("likes tea")]}),
            FakeSource({Section.MEMORIES: [], Section.DECISIONS: []}, EmbedTimeout("late")),
            FakeSource({Section.WORKING_MEMORY: []}, RuntimeError("a fault")),
            hangs,
        ],
        O200kTokens(),
    )
    pack = await packer.pack(SCOPE, PackRequest("tea"))
    assert "likes tea" in pack.packed.text
    assert pack.failed == {
        Section.MEMORIES: "EMBED_TIMEOUT",
        Section.DECISIONS: "EMBED_TIMEOUT",
        Section.WORKING_MEMORY: "INTERNAL",
        Section.PROCEDURES: "DEADLINE_EXCEEDED",
    }
    assert "a fault" not in str(pack)


async def test_a_section_that_hangs_is_given_up_before_the_caller_is() -> None:
    hangs = FakeSource({Section.PROCEDURES: []})
    hangs.gate.clear()
    packer = ContextPacker([FakeSource({Section.PROFILE: [entry("likes tea")]}), hangs], O200kTokens())
    load()
    with bind(Call(deadline=time.monotonic() + 0.4)):
        async with asyncio.timeout(0.4):
            pack = await packer.pack(SCOPE, PackRequest("tea"))
    assert "likes tea" in pack.packed.text
    assert pack.failed == {Section.PROCEDURES: "DEADLINE_EXCEEDED"}


async def test_only_what_is_wanted_is_read_and_the_situation_is_the_query_where_none_is_given() -> None:
    runs, procedures = FakeSource({Section.RUNS: [entry("run 1")]}), FakeSource({Section.PROCEDURES: [entry("p")]})
    packer = ContextPacker([runs, procedures], O200kTokens())
    await packer.pack(SCOPE, PackRequest(" deploy ", mode=Mode.DEBUG))
    assert not runs.asked
    assert [(asked.query, asked.situation) for asked in procedures.asked] == [("deploy", "deploy")]
    await packer.pack(SCOPE, PackRequest("q", situation="s", only=(Section.RUNS,), runs_limit=3))
    assert [asked.runs_limit for asked in runs.asked] == [3]
    assert len(procedures.asked) == 1
