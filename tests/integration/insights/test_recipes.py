"""The questions in SQL of the user's guide, each run as `insights.query` runs it, over rows whose answers are known."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from support import analysis
from support.analysis import FOREIGN_WORD, Analysts, open_analysts

from loom_common.clickhouse import ClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_insights.domain.analysis import AnalysisScope

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE: Final = Path(__file__).parents[3] / "docs" / "user" / "recipes.md"
RECIPES: Final = dict(re.findall(r"^### (.+?)\n.*?```sql\n(.*?)```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
SCOPE: Final = AnalysisScope("acme", ("recipes",))

# Per question: what the first row begins with, and how many rows there are.
EXPECTED: Final[dict[str, tuple[list[Any], int]]] = {
    "Which memories were never used?": (["recipes", "old", "", "fact", "bot"], 1),
    "Which memories do answers rest on most?": (["used", "", 2, 2, 1], 1),
    "How old is what answers show?": (["memory.search", 2, 39], 1),
    "Who reads what whom writes?": (["process:bot", "ana", 1], 2),
    "How often does a search find nothing?": ([None, 1, 2], 1),
    "What did an answer cost?": (["r-1", "memory.ask", "ana", 0.5, 1], 3),
    "What did each day and model cost?": ([None, "small", 1, 100, 10, 0.5], 1),
    "What did a run cost, and what did it read?": (["run-1", 1, 0.5, 1], 1),
    "Which calls fail, and why?": (["memory.set", "RATE_LIMITED", True, 1], 1),
    "Which agent wrote the most contradicted facts last week?": (["bot", 1], 1),
    "Which contradictions have waited longest?": (["c-1", "used", "old", 0.9], 1),
    "Which memories were judged wrong and still stand?": (["used", "", 1], 1),
    "Which memories change most often?": (["used", "", 2, 1], 1),
    "What ends in the next seven days?": (["used", ""], 1),
    "Which documents has nobody brought up to date?": (["handbook.md", "markdown", 1], 1),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def analysts(clickhouse_engine: EmbeddedEngine) -> AsyncIterator[Analysts]:
    async with open_analysts(clickhouse_engine) as opened:
        for org, word in (("acme", ""), ("umbra", FOREIGN_WORD)):
            await _seed(opened.ch, org, word)
        yield opened
    analysis.drop(clickhouse_engine)


async def _seed(ch: ClickHouse, org: str, word: str) -> None:
    bound = {"org": org, "word": word}
    for statement in _ROWS:
        await ch.command(statement, bound)


_COLUMNS: Final = """(org, namespace, memory_key, kind, agent, actor, revision, version, created_at, updated_at,
    invalid_at) SELECT {org:String}, 'recipes'"""
_ROWS: Final = (
    f"""INSERT INTO memory {_COLUMNS}, concat({{word:String}}, 'old'), 'fact', 'bot', 'process:bot', 1, 1,
        now() - INTERVAL 60 DAY, now() - INTERVAL 60 DAY, NULL""",
    f"""INSERT INTO memory {_COLUMNS}, concat({{word:String}}, 'used'), 'fact', 'bot', 'process:bot', 2, 3,
        now() - INTERVAL 50 DAY, now() - INTERVAL 40 DAY, now() + INTERVAL 3 DAY""",
    *(
        f"""INSERT INTO memory_versions {_COLUMNS}, concat({{word:String}}, 'used'), 'fact', 'bot', 'process:bot',
        {n}, {n}, now() - INTERVAL 9 DAY, now() - INTERVAL {9 - n} DAY, NULL"""
        for n in (1, 2)
    ),
    *(
        f"""INSERT INTO memory_exposures (org, namespace, memory_key, shown_at, op, request_id, run_id, subject,
            shown_rank)
        SELECT {{org:String}}, 'recipes', concat({{word:String}}, 'used'), now() - INTERVAL 1 DAY, 'memory.search',
        concat({{word:String}}, 'r-{n}'), {run!r}, {who!r}, {n}"""
        for n, run, who in ((1, "run-1", "ana"), (2, "", "bo"))
    ),
    *(
        f"""INSERT INTO agent_events (org, namespace, occurred_at, request_id, op, subject, run_id, status, refused,
            out_hits, input_tokens, output_tokens, llm_calls, upstream_cost_usd, model)
        SELECT {{org:String}}, 'recipes', now() - INTERVAL 1 HOUR, concat({{word:String}}, {row[0]}), {row[1]}"""
        for row in (
            ("'r-1'", "'memory.ask', 'ana', 'run-1', 'ok', false, 1, 100, 10, 1, 0.5, 'small'"),
            ("'r-2'", "'memory.search', 'bo', '', 'ok', false, 0, 0, 0, 0, 0, ''"),
            ("'r-2'", "'memory.search', 'bo', '', 'ok', false, 3, 0, 0, 0, 0, ''"),
            ("'r-3'", "'memory.set', 'bo', '', 'RATE_LIMITED', true, NULL, 0, 0, 0, 0, ''"),
        )
    ),
    """INSERT INTO memory_conflicts (org, namespace, conflict_id, newer_key, older_key, cosine, state, created_at,
            updated_at)
        SELECT {org:String}, 'recipes', concat({word:String}, 'c-1'), concat({word:String}, 'used'),
        concat({word:String}, 'old'), 0.9, 'open', now() - INTERVAL 2 DAY, now() - INTERVAL 2 DAY""",
    """INSERT INTO memory_signals (org, namespace, memory_key, signal, recorded_at)
        SELECT {org:String}, 'recipes', concat({word:String}, 'used'), 'wrong', now() - INTERVAL 1 DAY""",
    """INSERT INTO knowledge_documents (org, namespace, source_uri, kind, revision, updated_at)
        SELECT {org:String}, 'recipes', concat({word:String}, 'handbook.md'), 'markdown', 1,
        now() - INTERVAL 200 DAY""",
)


async def test_there_are_fifteen_questions_and_each_has_its_answer_here() -> None:
    assert list(RECIPES) == list(EXPECTED)
    assert len(RECIPES) == 15


@pytest.mark.parametrize("question", EXPECTED)
async def test_a_question_is_answered_from_ones_own_rows_alone(analysts: Analysts, question: str) -> None:
    outcome = await analysts.ask(RECIPES[question], SCOPE)
    analysts.assert_clean(outcome)
    first, count = EXPECTED[question]
    rows = outcome.rows
    assert len(rows) == count, rows
    shown = [None if known is None else value for known, value in zip(first, rows[0], strict=False)]
    assert shown == first
