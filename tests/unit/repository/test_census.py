"""Every table of every service is in a census, so that an erasure cannot pass one over."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from loom_assistant.census import CENSUS as ASSISTANT
from loom_common.erasure import HeldTable, Subject, bound_in
from loom_common.times import parse_time
from loom_embedding.store.census import CENSUS as EMBEDDING
from loom_gateway.identity.store.census import CENSUS as IDENTITY
from loom_insights.store.census import CENSUS as INSIGHTS
from loom_llm.store.census import CENSUS as LLM
from loom_memory.store.census import CENSUS as MEMORY

ROOT = Path(__file__).parents[3]
SHARED = "services/common/loom_common/migrations"
CENSUSES: dict[str, Sequence[HeldTable]] = {
    "services/memory/loom_memory/migrations": MEMORY,
    "services/llm/loom_llm/migrations": LLM,
    "services/embedding/loom_embedding/migrations": EMBEDDING,
    "services/insights/loom_insights/migrations": INSIGHTS,
    "gateway/loom_gateway/migrations": IDENTITY,
}
_CREATED = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+)")


def tables_of(folder: str) -> set[str]:
    return {name for path in (ROOT / folder).glob("*.sql") for name in _CREATED.findall(path.read_text())}


def test_every_folder_of_migrations_has_its_census() -> None:
    found = {
        str(path.parent.relative_to(ROOT)) for path in ROOT.glob("*/**/migrations/*.sql") if ".venv" not in path.parts
    }
    assert found == {*CENSUSES, SHARED}


@pytest.mark.parametrize("folder", sorted(CENSUSES))
def test_every_table_is_in_its_census(folder: str) -> None:
    """A new table gets its line in the `store/census.py` of the service that owns it."""
    listed = [held.table for held in CENSUSES[folder]]
    assert len(listed) == len(set(listed))
    assert set(listed) == tables_of(folder) | tables_of(SHARED)


@pytest.mark.parametrize("census", [*CENSUSES.values(), ASSISTANT], ids=[*CENSUSES, "assistant"])
def test_a_line_says_how_its_table_is_erased_or_why_it_need_not_be(census: Sequence[HeldTable]) -> None:
    subject = Subject("o", "n", "u", (), parse_time("2026-11-30", "t"))
    for held in census:
        assert bool(held.no_memory_content) != bool(held.of_user or held.of_memories), held.table
        for condition in (held.of_user, held.of_memories, held.scrubbed):
            placed = set(re.findall(r"\{(\w+):", condition))
            assert placed <= set(bound_in(condition, subject)), held.table
            assert not condition or held.scrubbed == condition or "org" in placed, held.table
