"""The boundary of a ClickHouse server, as far as it can be tried without one.

Its statements are read by the engine's own parser, its row policies are evaluated over real rows with the settings put
in, and its client speaks to a small server over HTTP.
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from support import analysis
from support.analysis import FOREIGN_WORD, GONE_WORD, Analysts, open_analysts

from loom_common.analysis import allowlist
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clickhouse.errors import AnalystFailure
from loom_common.clickhouse.http import ServerAddress
from loom_common.errors import AnalysisUnavailable, Overloaded, QueryRejected
from loom_insights.domain.analysis import AnalysisLimits
from loom_insights.domain.boundary import BoundaryBroken, BoundarySilent, Statement
from loom_insights.domain.server_entities import CANARY, Entities, ServerSecrets, quoted, scope_settings
from loom_insights.store.analysis_secrets import SecretsLost
from loom_insights.store.server_analyst import NoAnswer, ServerAnalyst
from loom_insights.store.server_boundary import ServerBoundary, ServerState

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRETS = ServerSecrets(bytes(range(32)), "Pass-word_1")
QUERY_ID = "request:1:nonce"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def analysts(clickhouse_engine: EmbeddedEngine) -> AsyncIterator[Analysts]:
    async with open_analysts(clickhouse_engine) as analysts:
        yield analysts
    analysis.drop(clickhouse_engine)


def entities(cluster: str = "", prefix: str = "SQL_") -> Entities:
    return Entities("loom", tuple(allowlist().values()), prefix, AnalysisLimits(), 8, cluster)


def policy_of(table: str) -> str:
    """Returns the condition of the analyst's policy on a table."""
    for statement in entities().policies(SECRETS):
        if f"loom_analysis_scope ON loom.{table} " in statement:
            return statement.partition(" USING ")[2].rpartition(" TO ")[0]
    raise AssertionError(f"{table} has no policy")


def with_settings(condition: str, settings: Mapping[str, str], query_id: str = QUERY_ID) -> str:
    """Returns a condition with the settings and the query id of one statement in their places."""
    for name, value in settings.items():
        condition = condition.replace(f"getSetting('{name}')", value)
    assert "getSetting" not in condition
    return condition.replace("initialQueryID()", quoted(query_id))


def signed(**changes: object) -> dict[str, str]:
    held = {
        "org": "acme",
        "namespaces": ["main"],
        "expires_at_s": int(time.time()) + 60,
        "query_id": QUERY_ID,
        "key": SECRETS.key,
    } | changes
    settings = scope_settings("SQL_", **held)  # type: ignore[arg-type]  # each is given above or by a test
    return {name: quoted(value) for name, value in settings.items()}


async def visible(analysts: Analysts, table: str, settings: Mapping[str, str], query_id: str = QUERY_ID) -> list[str]:
    """Returns the keys that the policy shows, after the rows of one key became one as the profile's `final` does."""
    condition = with_settings(policy_of(table), settings, query_id)
    merged = "SELECT * FROM memory FINAL" if table == "memory" else f"SELECT * FROM {table}"
    rows = await analysts.ch.query(f"SELECT memory_key FROM ({merged}) WHERE {condition} ORDER BY memory_key")
    return [str(key) for (key,) in rows]


@pytest.mark.parametrize(("cluster", "prefix"), [("", "SQL_"), ("main", "custom_")])
async def test_every_statement_is_one_that_the_engine_parses(analysts: Analysts, cluster: str, prefix: str) -> None:
    for statement in entities(cluster, prefix).statements(SECRETS):
        formatted = await analysts.analyst.formatted(statement)
        assert formatted.split()[0] == statement.split()[0]
        assert "loom_analyst" in formatted
        assert not cluster or "ON CLUSTER" in formatted


async def test_a_policy_shows_the_live_rows_of_the_signed_scope(analysts: Analysts) -> None:
    found = await visible(analysts, "memory", signed())
    assert found == ["own-0", "own-1", "own-2", "own-3", "own-replaced"]
    both = await visible(analysts, "memory", signed(namespaces=["main", "legal"]))
    assert len(both) == 9
    assert not [key for key in both if GONE_WORD in key]
    assert await visible(analysts, "memory_exposures", signed()) == ["own-0"]


async def test_a_policy_shows_nothing_to_a_scope_that_is_not_signed_for_this_statement(analysts: Analysts) -> None:
    good = signed()
    changed = {
        "another organisation": good | {"SQL_loom_org": "'umbra'"},
        "another namespace": good | {"SQL_loom_ns": quoted('["legal"]')},
        "a later end": good | {"SQL_loom_exp": quoted("9999999999")},
        "no signature": good | {"SQL_loom_sig": "''"},
        "another key": signed(key=bytes(32)),
        "an end that has passed": signed(expires_at_s=int(time.time()) - 1),
        "a number for the organisation": good | {"SQL_loom_org": "1"},
        "a list for the organisation": good | {"SQL_loom_org": "['umbra']"},
        "a number for the namespaces": good | {"SQL_loom_ns": "5"},
        "no JSON for the namespaces": good | {"SQL_loom_ns": "'[[['"},
        "a word for the end": good | {"SQL_loom_exp": "'soon'"},
        "a list for the end": good | {"SQL_loom_exp": "[1]"},
        "a number for the signature": good | {"SQL_loom_sig": "0"},
        "lengths that move a border": signed(org="acme4:main") | {"SQL_loom_org": "'acme'"},
    }
    for name, settings in changed.items():
        assert await visible(analysts, "memory", settings) == [], name
    assert await visible(analysts, "memory", good, "request:2:nonce") == [], "lifted into another statement"
    assert FOREIGN_WORD in (await visible(analysts, "memory", signed(org="umbra")))[0], (
        "the policy shows what is signed"
    )


async def test_the_policy_of_the_canary_takes_the_key_and_shows_its_row_to_nobody_else(analysts: Analysts) -> None:
    reserved = signed(org="", namespaces=[""])
    for settings, expected in ((reserved, 1), (signed(), 0), (signed(org="", namespaces=[""], key=bytes(32)), 0)):
        condition = with_settings(policy_of(CANARY), settings)
        counted = await analysts.ch.query(f"SELECT count() FROM {CANARY} WHERE {condition}")
        assert counted.scalar() == expected


class Server:
    """Answers as a ClickHouse server would, by the statement; what it was asked is kept."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], str]] = []
        self.answers: dict[str, tuple[int, str]] = {}
        self.drops = 0

    async def handle(self, request: web.Request) -> web.Response:
        sql = await request.text()
        self.asked.append((sql, dict(request.query), request.headers["X-ClickHouse-Key"]))
        if self.drops:
            self.drops -= 1
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        signed = "SQL_loom_sig" in request.query
        for part, (code, text) in self.answers.items():
            if part in sql and (signed or not part.startswith("signed ")):
                return self._failed(code, text) if code else web.Response(text=text)
        return self._default(sql, signed=signed)

    def _default(self, sql: str, *, signed: bool) -> web.Response:
        if "SHOW GRANTS" in sql:
            return web.Response(text="GRANT SELECT(org, namespace) ON loom.memory TO loom_analyst\n")
        if "value" in sql or "system.users" in sql:
            return self._failed(497, "Code: 497. DB::Exception: Not enough privileges. (ACCESS_DENIED)")
        if not signed:
            return self._failed(115, "Code: 115. DB::Exception: Unknown setting SQL_loom_org. (UNKNOWN_SETTING)")
        return web.Response(text="1\n" if CANARY in sql else "0\n")

    def _failed(self, code: int, text: str) -> web.Response:
        return web.Response(status=500, text=text, headers={"X-ClickHouse-Exception-Code": str(code)})


@asynccontextmanager
async def boundary(server: Server, state: ServerState | None = None) -> AsyncIterator[ServerBoundary]:
    app = web.Application()
    app.router.add_post("/", server.handle)
    async with TestServer(app) as listening:
        assert listening.port is not None
        address = ServerAddress("http", "127.0.0.1", listening.port, "loom", "", "loom")
        tables = (allowlist()["memory"], allowlist()["agent_events"])
        held = state or ServerState("SQL_", SECRETS, tables, newer=False)

        async def read() -> ServerState:
            return held

        async with ServerAnalyst(address, connections=2) as analyst:
            yield ServerBoundary(analyst, read, AnalysisLimits(time_s=1))


async def test_a_check_passes_over_a_server_that_holds_what_was_written() -> None:
    server = Server()
    async with boundary(server) as one:
        await one.probe()
    assert {password for _, _, password in server.asked} == {SECRETS.password}
    # Each statement has an id of its own, and no signature is sent twice.
    ids = [query["query_id"] for _, query, _ in server.asked]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("part", "code", "text", "found"),
    [
        (CANARY, 0, "0\n", BoundaryBroken),
        ("FROM memory", 0, "7\n", BoundaryBroken),
        ("value", 0, "x\n", BoundaryBroken),
        ("system.users", 0, "1\n", BoundaryBroken),
        ("SHOW GRANTS", 0, "GRANT SELECT ON loom.* TO loom_analyst\n", BoundaryBroken),
        ("SHOW GRANTS", 0, "GRANT loom_admin TO loom_analyst\n", BoundaryBroken),
        (CANARY, 516, "Code: 516. DB::Exception: failed. (AUTHENTICATION_FAILED)", BoundaryBroken),
        ("FROM memory", 158, "Code: 158. DB::Exception: rows. (TOO_MANY_ROWS)", BoundaryBroken),
        ("FROM memory", 202, "Code: 202. DB::Exception: x. (TOO_MANY_SIMULTANEOUS_QUERIES)", BoundarySilent),
    ],
)
async def test_a_check_finds_what_does_not_hold(part: str, code: int, text: str, found: type[Exception]) -> None:
    server = Server()
    server.answers[part] = (code, text)
    async with boundary(server) as one:
        with pytest.raises(found) as caught:
            await one.probe()
    assert "DB::Exception" not in str(caught.value)


async def test_the_grants_of_a_newer_build_are_its_own_to_check() -> None:
    server = Server()
    server.answers["SHOW GRANTS"] = (0, "GRANT SELECT(org, new) ON loom.newer TO loom_analyst\n")
    state = ServerState("SQL_", SECRETS, (allowlist()["memory"],), newer=True)
    async with boundary(server, state) as one:
        await one.probe()
    async with boundary(server, replace(state, newer=False)) as one:
        with pytest.raises(BoundaryBroken):
            await one.probe()


async def test_a_statement_that_lost_its_answer_is_sent_once_more_under_its_own_id() -> None:
    server = Server()
    server.drops = 1
    server.answers["SELECT 1"] = (0, '["a"]\n["UInt8"]\n[1]\n')
    async with boundary(server) as one:
        answer = await one.run(Statement("SELECT 1 AS a", analysis.OWN))
    assert answer.rows == [[1]]
    first, second = server.asked
    assert first[1]["query_id"] == second[1]["query_id"]
    assert first[1]["SQL_loom_sig"] == second[1]["SQL_loom_sig"]
    assert second[1]["replace_running_query"] == "1"
    # Both attempts may take all of their time before the signature ends.
    assert int(first[1]["SQL_loom_exp"]) >= time.time() + 2 * 1


async def test_what_a_caller_sees_of_a_servers_failures_is_ours_alone() -> None:
    quoting = (
        "Code: 47. DB::Exception: Unknown expression identifier `nosuch` in scope SELECT nosuch. (UNKNOWN_IDENTIFIER)",
        "Code: 6. DB::Exception: Cannot parse 'own-0': while executing SQL_loom_sig HMAC. (CANNOT_PARSE_TEXT)",
    )
    for text in quoting:
        server = Server()
        server.answers["SELECT"] = (int(text.split()[1].rstrip(".")), text)
        async with boundary(server) as one:
            with pytest.raises(QueryRejected) as caught:
                await one.run(Statement("SELECT nosuch FROM memory", analysis.OWN))
        assert "DB::" not in str(caught.value)
        assert "own-0" not in str(caught.value)
        assert "loom_sig" not in str(caught.value)


async def test_a_statement_in_the_middle_of_a_rotation_is_unavailable_and_never_empty() -> None:
    for name, code in (("AUTHENTICATION_FAILED", 516), ("QUERY_WAS_CANCELLED", 394)):
        server = Server()
        server.answers["SELECT"] = (code, f"Code: {code}. DB::Exception: x. ({name})")
        async with boundary(server) as one:
            with pytest.raises(AnalysisUnavailable):
                await one.run(Statement("SELECT 1", analysis.OWN))


async def test_a_lost_key_is_unavailable_and_a_server_that_is_silent_is_overloaded() -> None:
    async def lost() -> ServerState:
        raise SecretsLost("gone")

    address = ServerAddress("http", "127.0.0.1", 1, "loom", "", "loom")
    async with ServerAnalyst(address, connections=1) as analyst:
        with pytest.raises(AnalysisUnavailable):
            await ServerBoundary(analyst, lost, AnalysisLimits()).run(Statement("SELECT 1", analysis.OWN))
        with pytest.raises(BoundaryBroken):
            await ServerBoundary(analyst, lost, AnalysisLimits()).probe()

        async def held() -> ServerState:
            return ServerState("SQL_", SECRETS, (), newer=False)

        with pytest.raises(Overloaded):
            await ServerBoundary(analyst, held, AnalysisLimits()).run(Statement("SELECT 1", analysis.OWN))
        with pytest.raises(BoundarySilent):
            await ServerBoundary(analyst, held, AnalysisLimits()).probe()
        with pytest.raises((NoAnswer, AnalystFailure)):
            await analyst.run("SELECT 1", "TSV", "x", {}, query_id="q", timeout_s=1)
