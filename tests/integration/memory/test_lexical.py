"""The lexical statement against its reference in the domain."""

from datetime import UTC, datetime

import pytest
from support.memory import MemoryHarness

from loom_memory.domain.analyzer import analyze_query, analyze_text
from loom_memory.domain.memory import Filter
from loom_memory.domain.scoring import LexicalStatistics, lexical_match
from loom_memory.store.memories import MemoryRepository

DOCUMENTS = {
    f"d{number:02}": text
    for number, text in enumerate(
        [
            "The espresso machine is broken again",
            "espresso espresso espresso for everyone",
            "Part ZX-4417-Q of the machine was ordered from main.py",
            "我今天早上喝了一杯咖啡",
            "A long note about many things that never mentions the drink but does mention the machine twice: machine",
            *(f"filler text number {number} about gardens" for number in range(25)),
        ]
    )
}


@pytest.mark.parametrize("query", ["espresso machine", "ZX-4417-Q machine", "咖啡", "gardens number 7", "the drink"])
async def test_the_statement_gives_the_reference_numbers_in_its_order(memory: MemoryHarness, query: str) -> None:
    """Tolerance 1e-9: both compute in float64."""
    await memory.fill(DOCUMENTS)
    repository = MemoryRepository(memory.ch)
    now = datetime.now(UTC)
    statistics = await repository.statistics(memory.scope, Filter(), now)
    assert statistics.rows == len(DOCUMENTS)
    analyzed = analyze_query(query)
    found = await repository.lexical(memory.scope, Filter(), now, analyzed, statistics, 100)

    texts = {key: analyze_text(value) for key, value in DOCUMENTS.items()}
    df = [sum(term.term_id in text.term_ids for text in texts.values()) for term in analyzed.terms]
    reference = LexicalStatistics(statistics.rows, statistics.mean_dl, df)
    expected = {key: lexical_match(analyzed, text.term_ids, text.dl, reference) for key, text in texts.items()}
    expected = {key: match for key, match in expected.items() if match.bm25 > 0}
    assert {hit.identity.key for hit in found} == set(expected)
    for hit in found:
        match = expected[hit.identity.key]
        assert hit.bm25 == pytest.approx(match.bm25, rel=1e-9)
        assert hit.share == pytest.approx(match.share, rel=1e-9)
        assert hit.exact == match.exact
    assert [hit.identity.key for hit in found] == [
        hit.identity.key for hit in sorted(found, key=lambda hit: (-hit.exact, -hit.bm25, hit.identity))
    ]
