"""Statements that a grammar writes, hostile ones among them: whatever comes back holds nothing of another's."""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import analysis
from support.analysis import FOREIGN_WORD, GONE_WORD, TEXT_WORD, Analysts, open_analysts

from loom_common.analysis import allowlist
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_insights.domain.functions import allowed_functions, refused_functions

# Of the whole suite's time; what the grammar has not written by then it does not write.
BUDGET_S: Final = 6.0
MOST: Final = 400

_HOSTILE_TABLES: Final = (
    *("system.tables", "system.processes", "system.users", "memory_embeddings", "signing_keys", "knowledge_chunks"),
    *("file('/etc/passwd', 'LineAsString')", "merge('loom', '.*')", "view(SELECT value FROM memory)"),
    *("values('a String', 'x')", "INFORMATION_SCHEMA.TABLES", "numbers(3)", "system.one", "loom.memory SAMPLE 1/2"),
)
_HOSTILE_COLUMNS: Final = (
    "*",
    "value",
    "args",
    "version",
    "tombstoned_at",
    "tags",
    "_part",
    "COLUMNS('.*')",
    "b.value",
)
_LITERALS: Final = (
    *(
        "1",
        "0",
        "-1",
        "'umbra'",
        "'acme'",
        "NULL",
        "[1, 2]",
        "('a', 1)",
        "'%'",
        "now()",
        "INTERVAL 1 DAY",
        "1e308",
        "''",
    ),
)
_PLAIN_CALLS: Final = (
    *("toString({})", "length(toString({}))", "if(1, {}, {})", "coalesce({}, {})", "isNull({})", "toTypeName({})"),
    *("count({})", "any({})", "max({})", "groupArray({})", "uniqExact({})", "countIf(isNull({}))", "[{}]", "({}, {})"),
    *("arrayMap(x -> x, [{}])", "{}::String", "toUInt64({})", "toDate({})", "intDiv(1, {})", "{} = {}", "{} IN ({})"),
    *("max({}) OVER (PARTITION BY {})", "CASE WHEN isNull({}) THEN {} ELSE NULL END", "NOT {}", "{} LIKE {}"),
)
_NOISE: Final = (
    *(
        " -- x\n",
        "/* ) */",
        ")",
        "(",
        ";",
        " ; SELECT 1",
        " SETTINGS final = 0",
        " PREWHERE 1",
        " FORMAT CSV",
        "\n#",
        "$$",
    ),
    *(
        " UNION ALL SELECT value FROM memory",
        ") UNION ALL SELECT * FROM (SELECT value FROM memory",
        "`",
        "'",
        '"',
        "\\",
    ),
    *(" INTO OUTFILE '/tmp/x'", "; SET ROLE loom_admin; SELECT value FROM memory", "{x:String}", "\ufeff", "\t\r\n"),
    *(" SETTINGS log_comment = 'x'", " SETTINGS param_x = 1", " APPLY(file)", " LIMIT 1 WITH TIES", " LIMIT 1", " -- "),
)


class Writer:
    """Writes statements: most of parts that fit together, some of parts that must not pass."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        # How much of a statement is hostile: nothing of many, so that they run, and most of some.
        self._hostile = self._random.choice((0.0, 0.0, 0.05, 0.3))

    def statement(self) -> str:
        select = self._select(2)
        form = self._pick(
            "{}", "{}", "{}", "WITH t AS ({}) SELECT * FROM t", "SELECT count() FROM ({})", "{} UNION ALL {}",
            "SELECT * FROM ({}) AS q", "{} EXCEPT {}",
        )  # fmt: skip
        if self._is_hostile():
            form = self._pick(
                "EXPLAIN {}", "INSERT INTO memory {}", "DESCRIBE ({})", "SELECT 1) UNION ALL ({}", "({}", form
            )
        written = form.replace("{}", select)
        if not self._is_hostile():
            return written
        noise, at = self._pick(*_NOISE), self._random.randrange(len(written) + 1)
        return written + noise if self._random.random() < 0.5 else written[:at] + noise + written[at:]

    def _select(self, depth: int) -> str:
        table = self._pick(*sorted(allowlist()))
        columns = allowlist()[table].column_names
        source = self._pick(*_HOSTILE_TABLES) if self._is_hostile() else self._pick(table, f"loom.{table}")
        shown = ", ".join(self._expression(columns, depth) for _ in range(self._random.randint(1, 3)))
        parts = [f"SELECT {self._pick('', '', 'DISTINCT ')}{shown} FROM {source} AS a"]
        if self._random.random() < 0.2:
            join = self._pick("LEFT", "FULL", "CROSS")
            on = "" if join == "CROSS" else " ON a.org = b.org"
            parts.append(f"{join} JOIN {self._pick(*sorted(allowlist()))} AS b{on}")
        if self._random.random() < 0.4:
            parts.append(f"WHERE isNotNull({self._expression(columns, 1)}) OR org = 'umbra'")
        if self._random.random() < 0.2:
            parts.append(f"GROUP BY {self._pick(*columns)}")
        if self._random.random() < 0.2:
            parts.append(f"ORDER BY {self._pick(*columns)} {self._pick('ASC', 'DESC')}")
        return " ".join(parts)

    def _expression(self, columns: Sequence[str], depth: int) -> str:
        if depth == 0 or self._random.random() < 0.3:
            if self._is_hostile():
                return self._pick(*_HOSTILE_COLUMNS)
            return self._pick(*columns) if self._random.random() < 0.8 else self._pick(*_LITERALS)
        if self._random.random() < 0.1:
            return f"(SELECT {self._expression(columns, 0)} FROM {self._pick(*sorted(allowlist()))} LIMIT 1)"
        if self._is_hostile():
            name = self._pick(*sorted(refused_functions()), "FILE", "file", "File")
            return f"{name}({self._expression(columns, depth - 1)})"
        call = self._pick(*_PLAIN_CALLS)
        if self._random.random() < 0.3:
            call = f"{self._pick(*sorted(allowed_functions()))}({{}})"
        while "{}" in call:
            call = call.replace("{}", self._expression(columns, depth - 1), 1)
        return call

    def _is_hostile(self) -> bool:
        return self._random.random() < self._hostile

    def _pick(self, *choices: str) -> str:
        return self._random.choice(choices)


@pytest.fixture(scope="module")
def runner(clickhouse_engine: EmbeddedEngine) -> Iterator[tuple[asyncio.Runner, Analysts]]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        yield runner, runner.run(stack.enter_async_context(open_analysts(clickhouse_engine)))
        runner.run(stack.aclose())
    analysis.drop(clickhouse_engine)


def test_no_statement_of_a_grammar_shows_a_canary(runner: tuple[asyncio.Runner, Analysts]) -> None:
    loop, analysts = runner
    until = time.monotonic() + BUDGET_S
    ended: dict[str, int] = {}

    @settings(max_examples=MOST, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**64 - 1))
    def statement(seed: int) -> None:
        if time.monotonic() > until:
            return
        sql = Writer(seed).statement()
        outcome = loop.run(analysts.ask(sql))
        ended[outcome.reason] = ended.get(outcome.reason, 0) + 1
        analysts.assert_clean(outcome)
        # Below the look at the parse, grants and filters keep tenants and texts of rows apart. A semicolon would end
        # the statement there, a function may read the engine's own files, and settings may bring deleted rows back.
        if not any(word in sql for word in (";", "SETTINGS", "PREWHERE")) and "file" not in sql.lower():
            shown = loop.run(analysts.unguarded(f"SELECT * FROM (\n{sql}\n)"))
            words = (FOREIGN_WORD, TEXT_WORD, GONE_WORD)
            assert not [word for word in words if word in shown], f"{sql!r}: {shown[:300]}"

    statement()
    assert set(ended) <= {"ok", "QUERY_REJECTED", "QUERY_LIMIT"}, ended
    assert ended.get("ok", 0) > 10, f"the grammar writes too few statements that run: {ended}"
