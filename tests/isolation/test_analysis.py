"""A caller's SQL reads the rows of its own scope and nothing else, whatever it says.

The engine is the one inside the process. Each statement runs twice: as `insights.query` runs it, and below the look at
its parse, where grants and row filters are all there is. Neither may show a canary; the first refuses by reason.
"""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support import analysis
from support.analysis import FOREIGN, FOREIGN_WORD, GONE_WORD, LIMITS, OWN, TEXT_WORD, Analysts, open_analysts

from loom_common.clickhouse.analyst_access import AnalystKey, SignedScope
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clickhouse.errors import AnalystFailure
from loom_insights.domain.analysis import AnalysisScope
from loom_insights.domain.boundary import BoundaryBroken
from loom_insights.store.embedded_boundary import EmbeddedBoundary

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Takes longer than a statement may.
MANY_PAIRS = "FROM numbers(1000000) AS a CROSS JOIN numbers(900000) AS b WHERE a.number * b.number % 7 = 1"
OWN_KEYS = ["own-0", "own-1", "own-2", "own-3", "own-replaced"]

IN_SCOPE = {
    "a filter on the other organisation": "SELECT memory_key FROM memory WHERE org = 'umbra'",
    "a filter on a namespace that the call does not name": "SELECT memory_key FROM memory WHERE namespace = 'legal'",
    "a condition that always holds": "SELECT memory_key, org FROM memory WHERE 1 OR org = 'umbra'",
    "a join over the same table": "SELECT a.org, b.org, b.memory_key FROM memory AS a FULL JOIN memory AS b ON 1 = 1",
    "a subquery over the same table": "SELECT kind FROM memory WHERE memory_key IN (SELECT memory_key FROM memory)",
    "a union with the other organisation": "SELECT memory_key FROM memory UNION ALL "
    "SELECT memory_key FROM memory WHERE org = 'umbra'",
    "a union that leaves out one's own": "SELECT org, memory_key FROM memory EXCEPT "
    "SELECT org, memory_key FROM memory WHERE org = 'acme'",
    "a common table": "WITH RECURSIVE t AS (SELECT org FROM memory UNION ALL SELECT org FROM t WHERE 0) "
    "SELECT * FROM t",
    "counts of organisations": "SELECT uniqExact(org), uniqExact(namespace), groupUniqArray(org) FROM memory",
    "extremes of columns": "SELECT min(org), max(org), min(memory_key), max(memory_key), any(namespace) FROM memory",
    "a group with totals": "SELECT org, count() FROM memory GROUP BY org WITH TOTALS",
    "a window over rows": "SELECT DISTINCT first_value(org) OVER (ORDER BY org DESC), max(org) OVER () FROM memory",
    "a sample": "SELECT org FROM agent_events SAMPLE 1/1",
    "an array join": "SELECT DISTINCT org FROM memory ARRAY JOIN [1, 2] AS n",
    "the ledger": "SELECT org, request_id, subject FROM agent_events",
    "exposures": "SELECT org, memory_key, request_id FROM memory_exposures",
    "versions": "SELECT org, memory_key, kind FROM memory_versions",
    "a correlated subquery": "SELECT (SELECT max(b.org) FROM memory AS b WHERE b.org > a.org) FROM memory AS a",
    "an exists over others": "SELECT 1 WHERE EXISTS (SELECT 1 FROM memory WHERE org = 'umbra')",
    "a final of one's own": "SELECT memory_key, kind FROM memory FINAL",
    "an error per row": "SELECT toUInt64(memory_key) FROM memory",
    "an error in a condition": "SELECT count() FROM memory WHERE toUInt64(memory_key) > 0",
    "an error of others' rows alone": f"SELECT count() FROM memory WHERE intDiv(1, org != 'umbra' AND "
    f"NOT startsWith(memory_key, '{FOREIGN_WORD}')) = 1",
    "a division by whether others exist": "SELECT intDiv(1, count() = 5) FROM memory",
}

OUT_OF_SCOPE = {
    "a text": "SELECT value FROM memory",
    "a column behind a star": "SELECT * FROM memory",
    "a column by pattern": "SELECT COLUMNS('val.*') FROM memory",
    "a column in a condition alone": "SELECT count() FROM memory WHERE value LIKE '%a%'",
    "a column in an order alone": "SELECT memory_key FROM memory ORDER BY value",
    "a column in a join alone": "SELECT 1 FROM memory AS a JOIN memory AS b ON a.value = b.value",
    "a column through a common table": "WITH t AS (SELECT * FROM memory) SELECT value FROM t",
    "arguments of the ledger": "SELECT args FROM agent_events",
    "arguments by key": "SELECT args['query'] FROM agent_events",
    "keys of arguments": "SELECT args.keys FROM agent_events",
    "a column of the store": "SELECT version FROM memory",
    "tombstones": "SELECT tombstoned_at FROM memory",
    "tags": "SELECT tags FROM memory",
    "a virtual column": "SELECT _part, _part_offset FROM memory",
    "a virtual table name": "SELECT _table, _database FROM memory",
    "vectors": "SELECT * FROM memory_embeddings",
    "documents": "SELECT text FROM knowledge_chunks",
    "signing keys": "SELECT * FROM signing_keys",
    "revoked tokens": "SELECT * FROM revoked_tokens",
    "the canary": "SELECT * FROM analysis_canary",
    "the secrets": "SELECT * FROM analysis_secrets",
    "migrations": "SELECT * FROM schema_migrations",
    "claims": "SELECT name FROM claims",
    "another database": "SELECT * FROM default.anything",
    "the query log": "SELECT query FROM system.query_log",
    "processes": "SELECT query FROM system.processes",
    "tables": "SELECT name FROM system.tables",
    "columns": "SELECT name FROM system.columns",
    "parts": "SELECT * FROM system.parts",
    "row policies": "SELECT * FROM system.row_policies",
    "users": "SELECT * FROM system.users",
    "roles": "SELECT * FROM system.roles",
    "grants": "SELECT * FROM system.grants",
    "settings": "SELECT * FROM system.settings WHERE name = 'log_comment'",
    "server settings": "SELECT * FROM system.server_settings",
    "disks": "SELECT path FROM system.disks",
    "errors": "SELECT last_error_message FROM system.errors",
    "functions": "SELECT name FROM system.functions",
    "quoted system tables": "SELECT * FROM `system`.`users`",
    "quoted otherwise": 'SELECT * FROM "system"."processes"',
    "information schema": "SELECT * FROM information_schema.tables",
    "information schema in capitals": "SELECT * FROM INFORMATION_SCHEMA.COLUMNS",
    "a name behind IN": "SELECT 1 WHERE 'default' IN system.users",
    "a secret table behind IN": "SELECT 1 WHERE 'k' IN signing_keys",
    "a tuple of tables behind IN": "SELECT (1, 2) NOT IN system.roles",
}

OTHER_STATEMENTS = (
    "SHOW TABLES", "SHOW CREATE TABLE memory", "SHOW GRANTS", "SHOW PROCESSLIST", "SHOW CREATE ROW POLICY",
    "DESCRIBE memory", "DESC TABLE memory", "EXISTS TABLE signing_keys", "CHECK TABLE memory",
    "KILL QUERY WHERE 1 TEST", "KILL QUERY WHERE user = 'default' SYNC",
    "EXPLAIN SELECT 1", "EXPLAIN AST SELECT 1", "EXPLAIN SYNTAX SELECT 1",
    "EXPLAIN ESTIMATE SELECT count() FROM memory",
    "EXPLAIN PIPELINE SELECT 1", "EXPLAIN indexes = 1 SELECT count() FROM memory", "EXPLAIN TABLE OVERRIDE mysql('a')",
    "EXPLAIN QUERY TREE SELECT 1", "EXPLAIN CURRENT TRANSACTION",
    "INSERT INTO memory (org) VALUES ('umbra')", "INSERT INTO memory SELECT * FROM memory",
    "INSERT INTO FUNCTION file('/tmp/x', 'CSV', 'a String') SELECT 'x'",
    "ALTER TABLE memory DELETE WHERE 1", "ALTER TABLE memory UPDATE kind = 'x' WHERE 1", "DELETE FROM memory WHERE 1",
    "UPDATE memory SET kind = 'x' WHERE 1", "TRUNCATE TABLE memory", "DROP TABLE memory", "DROP DATABASE loom",
    "UNDROP TABLE memory", "DETACH TABLE memory", "ATTACH TABLE memory", "RENAME TABLE memory TO m",
    "EXCHANGE TABLES memory AND memory_versions", "OPTIMIZE TABLE memory FINAL",
    "CREATE TEMPORARY TABLE t (a UInt8)", "CREATE TABLE t ENGINE = Memory AS SELECT 1", "CREATE VIEW v AS SELECT 1",
    "CREATE FUNCTION f AS x -> x", "CREATE USER u", "CREATE DICTIONARY d (a UInt8) PRIMARY KEY a", "CREATE WORKLOAD w",
    "GRANT ALL ON *.* TO default", "REVOKE ALL ON *.* FROM default", "SET ROLE loom_admin", "SET ROLE ALL",
    "SET final = 0", "SET log_comment = 'x'", "USE system", "SYSTEM SHUTDOWN", "SYSTEM FLUSH LOGS",
    "SYSTEM RELOAD CONFIG",
    "BACKUP TABLE memory TO File('/tmp/x')", "RESTORE TABLE memory FROM File('/tmp/x')", "BEGIN TRANSACTION", "COMMIT",
    "WATCH memory", "EXECUTE AS loom_admin SELECT 1", "PARALLEL WITH SELECT 1", "COPY memory TO STDOUT",
)  # fmt: skip

ESCAPES = (
    "1) UNION ALL SELECT * FROM (SELECT name FROM system.tables",
    "SELECT 1) UNION ALL (SELECT value FROM memory",
    "SELECT 1) AS a, (SELECT value FROM memory",
    "SELECT 1\n) SETTINGS final = 0 -- ",
    "SELECT 1) FORMAT CSV --",
    "SELECT 1) INTO OUTFILE '/tmp/x' --",
    "SELECT 1; SELECT value FROM memory",
    "SELECT 1; SET ROLE loom_admin; SELECT value FROM memory",
    "SELECT 1\n;\nSET ROLE ALL",
    "SELECT 1); SET ROLE loom_admin; SELECT (1",
    "SELECT 1 /* ; */ ; DROP TABLE memory",
    "SELECT 1 -- \n; SET ROLE loom_admin",
    "SELECT 1 # \n) UNION ALL SELECT * FROM (SELECT value FROM memory",
    "SELECT 1 #! x\n; SELECT 2",
    "SELECT '\\'') UNION ALL SELECT value FROM (SELECT value FROM memory WHERE value != '",
    "SELECT $$ ) $$ ; SELECT 1",
    "SELECT $tag$ ; $tag$; SELECT value FROM memory",
    "SELECT `) UNION ALL SELECT value FROM memory",
    "EXPLAIN SELECT 1) UNION ALL SELECT * FROM (SELECT 1",
    "SELECT * FROM (EXPLAIN SELECT * FROM memory)",
    "SELECT * FROM (EXPLAIN ESTIMATE SELECT count() FROM memory)",
    "SELECT * FROM (SHOW TABLES)",
    "SELECT * FROM viewExplain('EXPLAIN', '', (SELECT 1))",
    "(((SELECT 1)))) UNION ALL ((SELECT 2)",
    "SELECT 1 FORMAT JSON",
    "SELECT 1 INTO OUTFILE '/tmp/x' FORMAT CSV",
    "SELECT 1 INTO OUTFILE '/tmp/x' APPEND",
    "SELECT {org:String}",
    "SELECT {t:Identifier} FROM memory",
    "\x00SELECT 1",
    "SELECT 1 \x00; SET ROLE loom_admin",
    "SELECT '\x00'",
    ";",
    "-- nothing",
    "/* open",
    "SELECT 'open",
    "SELECT (",
    "",
    "\ufeffSELECT 1; SELECT 2",
    "SELECT 1\u00a0;\u00a0SELECT 2",
    "SELECT 1\u2028; SELECT 2",
    "SELECT * APPLY(file) FROM (SELECT '/etc/passwd')",
    "SELECT * APPLY(x -> file(x)) FROM (SELECT '/etc/passwd')",
    "SELECT COLUMNS('a') APPLY file FROM (SELECT '/etc/passwd' AS a)",
    "FROM memory SELECT value",
    "WITH x AS (SELECT 1) INSERT INTO memory SELECT 1",
)  # fmt: skip

SETTINGS = (
    "SELECT memory_key FROM memory SETTINGS final = 0",
    "SELECT memory_key FROM memory SETTINGS final = 0, apply_row_policy_after_final = 0",
    "SELECT memory_key FROM (SELECT memory_key FROM memory SETTINGS final = 0)",
    "SELECT memory_key FROM memory settings   FINAL=false",
    "SELECT memory_key FROM memory SETTINGS log_comment = 'x'",
    "SELECT memory_key FROM memory SETTINGS log_comment = 1",
    "SELECT memory_key FROM memory SETTINGS log_comment = [1]",
    "SELECT memory_key FROM memory SETTINGS log_comment = DEFAULT",
    "SELECT memory_key FROM memory SETTINGS SQL_loom_org = 'umbra'",
    "SELECT memory_key FROM memory SETTINGS param_org = 'umbra'",
    "SELECT 1 SETTINGS readonly = 0",
    "SELECT 1 SETTINGS max_execution_time = 0",
    "SELECT 1 SETTINGS max_memory_usage = 0, max_rows_to_read = 0",
    "SELECT number FROM numbers(5000) SETTINGS max_result_rows = 0, result_overflow_mode = 'break'",
    "SELECT 1 SETTINGS max_threads = 256",
    "SELECT 1 SETTINGS use_query_cache = 1",
    "SELECT 1 SETTINGS use_query_condition_cache = 1",
    "SELECT 1 SETTINGS send_logs_level = 'trace'",
    "SELECT 1 SETTINGS log_queries_cut_to_length = 100000, log_formatted_queries = 1",
    "SELECT 1 SETTINGS format_display_secrets_in_show_and_select = 1",
    "SELECT 1 SETTINGS optimize_move_to_prewhere_if_final = 1",
    "SELECT toUInt64(memory_key) FROM memory SETTINGS short_circuit_function_evaluation = 'disable'",
    "SELECT 1 SETTINGS allow_introspection_functions = 1",
    "SELECT 1 SETTINGS profile = 'default'",
    "SELECT 1 UNION ALL SELECT 2 SETTINGS final = 0",
    "WITH (SELECT 1 SETTINGS final = 0) AS a SELECT a",
    "SELECT 1 WHERE 1 IN (SELECT 1 SETTINGS readonly = 0)",
    "SELECT memory_key FROM memory PREWHERE version < 2",
    "SELECT memory_key FROM memory prewhere kind != ''",
    "SELECT memory_key FROM (SELECT memory_key FROM memory PREWHERE 1)",
)

READERS = (
    "file('/etc/passwd')", "file('loom-users.xml')", "filesystemAvailable()", "getServerSetting('path')",
    "getSetting('log_comment')", "getSettingOrDefault('log_comment', '')", "getMacro('x')", "getMergeTreeSetting('x')",
    "currentUser()", "currentRoles()", "currentDatabase()", "hostName()", "FQDN()", "serverUUID()", "version()",
    "buildId()", "uptime()", "tcpPort()", "getServerPort('tcp_port')", "getOSKernelVersion()", "showCertificate()",
    "queryID()", "initialQueryID()", "connectionId()", "shardNum()", "zookeeperSessionUptime()",
    "dictGet('d', 'a', 1)", "dictHas('d', 1)", "joinGet('memory', 'value', 1)", "regionToName(toUInt32(1))",
    "hasColumnInTable('loom', 'memory', 'value')", "evalMLMethod(1, 2)", "catboostEvaluate('/x', 1)",
    "sleep(1)", "sleepEachRow(0.1)", "throwIf(1)", "logTrace('x')", "addressToSymbol(1)", "demangle('x')",
    "formatQuery('SELECT 1')", "normalizeQuery('SELECT 1')", "fuzzQuery('SELECT 1')", "chdb('SELECT 1')",
    "aiGenerate('collection', 'x')", "AIGenerate('x')", "aiEmbed('x')",
    "encrypt('aes-128-ecb', 'x', 'keykeykeykeykeyk')",
    "decrypt('aes-128-ecb', 'x', 'keykeykeykeykeyk')", "HMAC('sha256', 'x', 'k')", "generateUUIDv4()", "rand()",
    "initializeAggregation('sum', 1)", "arrayReduce('sum', [1])", "transactionID()", "currentProfiles()", "tid()",
    "FILE('/etc/passwd')", "File('/etc/passwd')", "`file`('/etc/passwd')", "nosuchfunction(1)", "countState()",
    "__getScalar('x')", "getClientHTTPHeader('authorization')", "globalVariable('version')",
)  # fmt: skip

TABLE_READERS = (
    "file('/etc/passwd', 'LineAsString')", "url('http://127.0.0.1:1/', 'LineAsString')", "s3('http://x/y', 'CSV')",
    "remote('127.0.0.1', 'loom', 'memory')", "remoteSecure('127.0.0.1', loom.memory)",
    "cluster('default', loom.memory)",
    "clusterAllReplicas('default', system.one)", "executable('id', 'TSV', 'a String')", "input('a String')",
    "view(SELECT value FROM memory)", "viewIfPermitted(SELECT value FROM memory ELSE null('value String'))",
    "merge('loom', '.*')", "merge(REGEXP('.*'), 'memory')", "loop(loom, memory)", "dictionary('d')",
    "mergeTreeIndex(loom, memory)", "mergeTreeIndex('loom', 'memory', with_marks = true)",
    "mergeTreeProjection(loom, memory, p)", "mergeTreeTextIndex(loom, memory, i)",
    "mergeTreeAnalyzeIndexes(loom, memory)",
    "mysql('h:1', 'd', 't', 'u', 'p')", "postgresql('h:1', 'd', 't', 'u', 'p')", "sqlite('/x', 't')",
    "mongodb('h:1', 'd', 'c', 'u', 'p', 'a String')", "redis('h:1', 'k', 'k String')", "odbc('DSN=x', 'd', 't')",
    "hdfs('hdfs://x', 'CSV')", "azureBlobStorage('x')", "iceberg('x')", "deltaLake('x')", "deltaLakeLocal('/x')",
    "icebergLocal('/x')", "filesystem('/')", "python('x')", "Python(x)", "eval('SELECT 1')", "values('a String', 'x')",
    "format(LineAsString, 'x')", "generateRandom('a String')", "fuzzJSON('x')", "fuzzQuery('SELECT 1')",
    "null('a String')", "zeros(1)", "timeSeriesData(x)", "prometheusQuery('x')",
)  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def analysts(clickhouse_engine: EmbeddedEngine) -> AsyncIterator[Analysts]:
    async with open_analysts(clickhouse_engine) as analysts:
        yield analysts
    analysis.drop(clickhouse_engine)


async def clean(analysts: Analysts, *statements: str, reasons: tuple[str, ...]) -> None:
    """Runs each statement both ways; none may show a canary, and the guarded way must end by one of the reasons."""
    for sql in statements:
        outcome = await analysts.ask(sql)
        analysts.assert_clean(outcome)
        assert outcome.reason in reasons, f"{sql!r} ended with {outcome.reason}: {outcome.shown()[:300]}"


async def test_a_statement_reads_the_live_rows_of_its_own_scope(analysts: Analysts) -> None:
    outcome = await analysts.ask("SELECT memory_key FROM memory ORDER BY memory_key")
    assert [key for (key,) in outcome.rows] == OWN_KEYS
    foreign = await analysts.ask("SELECT count() FROM memory", FOREIGN)
    assert foreign.rows == [[4]]
    both = await analysts.ask("SELECT count() FROM memory", AnalysisScope("acme", ("main", "legal")))
    assert both.rows == [[9]]


async def test_no_way_of_reading_leaves_the_scope(analysts: Analysts) -> None:
    await clean(analysts, *IN_SCOPE.values(), reasons=("ok", "QUERY_REJECTED"))
    for name, sql in IN_SCOPE.items():
        shown = await analysts.unguarded(sql)
        words = [FOREIGN_WORD, TEXT_WORD, GONE_WORD, "umbra"]
        assert not [word for word in words if word in shown and word not in sql], f"{name}: {shown[:300]}"


async def test_an_error_that_only_anothers_row_would_raise_is_not_raised(analysts: Analysts) -> None:
    for name in ("an error of others' rows alone", "a division by whether others exist"):
        outcome = await analysts.ask(IN_SCOPE[name])
        assert outcome.reason == "ok", name


async def test_tables_and_columns_outside_the_allowlist_are_refused(analysts: Analysts) -> None:
    await clean(analysts, *OUT_OF_SCOPE.values(), reasons=("QUERY_REJECTED",))


async def test_grants_and_filters_alone_show_no_text_and_no_other_tenant(analysts: Analysts) -> None:
    for name, sql in OUT_OF_SCOPE.items():
        shown = await analysts.unguarded(f"SELECT * FROM (\n{sql}\n)")
        words = [FOREIGN_WORD, TEXT_WORD, GONE_WORD, "umbra", analysts.engine.analyst_key.value.hex()]
        assert not [word for word in words if word in shown and word not in sql], f"{name}: {shown[:300]}"


async def test_statements_that_are_no_select_are_refused(analysts: Analysts) -> None:
    await clean(analysts, *OTHER_STATEMENTS, reasons=("QUERY_REJECTED",))
    assert (await analysts.ask("SELECT count() FROM memory")).rows == [[len(OWN_KEYS)]]


async def test_nothing_leaves_the_wrapper_by_parenthesis_comment_semicolon_or_quote(analysts: Analysts) -> None:
    await clean(analysts, *ESCAPES, reasons=("QUERY_REJECTED",))


async def test_no_spelling_of_settings_or_prewhere_is_taken(analysts: Analysts) -> None:
    await clean(analysts, *SETTINGS, reasons=("QUERY_REJECTED",))


async def test_common_tables_that_multiply_and_widths_without_bound_are_refused_before_they_run(
    analysts: Analysts,
) -> None:
    def doubled(select: str) -> str:
        links = (f"a{n + 1} AS ({select.format(n)})" for n in range(30))
        return f"WITH a0 AS (SELECT 1 AS x), {', '.join(links)} SELECT x FROM a30"

    nested = "SELECT 1 AS x"
    for _ in range(12):
        nested = f"WITH a AS ({nested}) SELECT p.x FROM a AS p CROSS JOIN a AS q"
    multiplying = (
        doubled("SELECT p.x FROM a{0} AS p CROSS JOIN a{0} AS q"),
        doubled("SELECT x FROM a{0} WHERE x IN a{0}"),
        doubled("SELECT x FROM a{0} UNION ALL SELECT x FROM a{0}"),
        nested,
    )
    for sql in multiplying:
        began = time.monotonic()
        assert (await analysts.ask(sql)).reason == "QUERY_LIMIT"
        # The engine ends the first of these after the statement's own limit, if at all.
        assert time.monotonic() - began < LIMITS.time_s, sql[:80]
    await clean(analysts, "SELECT length(printf('%300000000d', 1))", reasons=("QUERY_REJECTED",))
    twice = "WITH a AS (SELECT kind FROM memory), b AS (SELECT kind FROM a) SELECT count() FROM b AS p, b AS q"
    assert (await analysts.ask(twice)).rows == [[len(OWN_KEYS) ** 2]]
    chain = ", ".join(f"a{n + 1} AS (SELECT x FROM a{n})" for n in range(20))
    assert (await analysts.ask(f"WITH a0 AS (SELECT 1 AS x), {chain} SELECT x FROM a20")).rows == [[1]]


async def test_statements_that_cannot_be_ended_do_not_take_the_places_of_other_organisations(
    analysts: Analysts,
) -> None:
    analyst = analysts.ch.analyst(4)  # type: ignore[attr-defined]  # the engine inside this process has one
    EmbeddedBoundary(analyst, LIMITS)
    # One call of a function, inside which no limit and no kill is looked at.
    stuck = "SELECT editDistance(leftPad('a', 24000, 'b'), leftPad('c', 24000, 'd'))"

    async def run(sql: str, scope: AnalysisScope) -> bytes:
        return bytes(await analyst.run(sql, "TSV", scope.org, scope.namespaces, timeout_s=LIMITS.time_s))

    try:
        tasks = [asyncio.create_task(run(stuck, OWN)) for _ in range(2)]
        await asyncio.wait(tasks, timeout=0.3)
        assert not any(task.done() for task in tasks), "the statement ended too soon to prove anything"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with pytest.raises(AnalystFailure) as refused:
            await run("SELECT 1", OWN)
        assert refused.value.cause.name == "TOO_MANY_SIMULTANEOUS_QUERIES"
        assert await run("SELECT 1", FOREIGN) == b"1\n"
    finally:
        # Closing waits for what still runs.
        await analyst.close()


async def test_functions_of_a_granted_column_are_not_refused_for_a_part_of_it(analysts: Analysts) -> None:
    sql = (
        "SELECT count(), count(out_hits), countIf(found IS NULL), max(length(subject) > 0), countIf(empty(user_id)) "
        "FROM agent_events WHERE out_hits IS NULL"
    )
    assert (await analysts.ask(sql)).rows == [[1, 0, 1, 1, 1]]


async def test_functions_that_read_beyond_their_arguments_are_refused(analysts: Analysts) -> None:
    await clean(analysts, *(f"SELECT {call}" for call in READERS), reasons=("QUERY_REJECTED",))
    # Where a function may stand otherwise: conditions, lambdas, subqueries, windows, sort orders.
    wrapped = (
        "SELECT count() FROM memory WHERE file(memory_key) != ''",
        "SELECT arrayMap(x -> file(x), ['/etc/passwd'])",
        "SELECT (SELECT file('/etc/passwd'))",
        "SELECT sum(length(file('/etc/passwd'))) OVER ()",
        "SELECT memory_key FROM memory ORDER BY file('/etc/passwd')",
        "SELECT memory_key FROM memory GROUP BY memory_key HAVING file('/etc/passwd') != ''",
        "SELECT memory_key FROM memory LIMIT length(file('/etc/passwd'))",
        "SELECT 1 FROM memory AS a JOIN memory AS b ON file('/etc/passwd') = a.memory_key",
        "WITH file('/etc/passwd') AS x SELECT x",
        "SELECT * REPLACE (file('/etc/passwd') AS kind) FROM (SELECT kind FROM memory)",
        "SELECT number FROM numbers(length(file('/etc/passwd')))",
        "SELECT CAST(file('/etc/passwd') AS String)",
        "SELECT file('/etc/passwd')::String",
        "SELECT memory_key FROM memory ORDER BY memory_key WITH FILL TO length(file('/etc/passwd'))",
        "SELECT 1 AS n ORDER BY n WITH FILL FROM 1 TO 3 INTERPOLATE (n AS length(file('/etc/passwd')))",
        "SELECT memory_key FROM memory QUALIFY file('/etc/passwd') != ''",
        "SELECT count() OVER w FROM memory WINDOW w AS (PARTITION BY file('/etc/passwd'))",
        "SELECT memory_key FROM memory LIMIT 1 BY file('/etc/passwd')",
        "SELECT x FROM memory ARRAY JOIN [file('/etc/passwd')] AS x",
        "SELECT countIf(file('/etc/passwd') != '') FROM memory",
        "SELECT count() FILTER (WHERE file('/etc/passwd') != '') FROM memory",
    )
    await clean(analysts, *wrapped, reasons=("QUERY_REJECTED",))


async def test_table_functions_that_read_beyond_the_allowlist_are_refused(analysts: Analysts) -> None:
    await clean(analysts, *(f"SELECT * FROM {call}" for call in TABLE_READERS), reasons=("QUERY_REJECTED",))
    every = await analysts.ch.query("SELECT name FROM system.table_functions ORDER BY name")
    for (name,) in every:
        outcome = await analysts.ask(f"SELECT * FROM `{name}`(1)")
        analysts.assert_clean(outcome)
        expected = ("ok",) if name in ("numbers", "generateSeries", "generate_series") else ("QUERY_REJECTED",)
        assert outcome.reason in (*expected, "QUERY_REJECTED"), name


async def test_huge_deep_and_odd_statements_end_in_a_refusal_or_a_limit(analysts: Analysts) -> None:
    deep = {
        "parentheses": "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
        "subqueries": "SELECT * FROM (" * 400 + "SELECT 1" + ")" * 400,
        "functions": "SELECT " + "not(" * 2_000 + "1" + ")" * 2_000,
        "arrays": "SELECT " + "[" * 3_000 + "]" * 3_000,
        "lambdas": "SELECT " + "arrayMap(x -> " * 300 + "1" + ", [1])" * 300,
        "a megabyte of text": "SELECT '" + "x" * 1_000_000 + "'",
        "a megabyte of numbers": "SELECT " + ",".join(["1"] * 400_000),
        "a megabyte of comments": "/* " + "x" * 1_000_000 + " */ SELECT 1; SELECT 2",
        "many unions": "SELECT 1" + " UNION ALL SELECT 1" * 8_000,
        "many columns": "SELECT " + ", ".join(f"{n} AS c{n}" for n in range(15_000)),
    }
    for name, sql in deep.items():
        outcome = await analysts.ask(sql)
        analysts.assert_clean(outcome)
        assert outcome.reason in ("ok", "QUERY_REJECTED", "QUERY_LIMIT"), f"{name}: {outcome.reason}"
    assert (await analysts.ask("SELECT count() FROM memory")).rows == [[len(OWN_KEYS)]]


async def test_every_limit_is_an_error_that_names_it_and_nothing_is_cut_off(analysts: Analysts) -> None:
    over = {
        "SELECT number FROM numbers(1001)": "result_rows",
        "SELECT number, toString(number) FROM numbers(100000)": "result_rows",
        "SELECT count() FROM numbers(3000000)": "read_rows",
        "SELECT groupArray(number) FROM (SELECT number FROM numbers(1900000)) GROUP BY number % 2": "",
        f"SELECT count() {MANY_PAIRS}": "",
    }
    for sql, limit in over.items():
        outcome = await analysts.ask(sql)
        assert outcome.reason == "QUERY_LIMIT", f"{sql}: {outcome.shown()[:200]}"
        assert outcome.error is not None
        assert not limit or outcome.error.detail["limit"] == limit
    assert len((await analysts.ask("SELECT number FROM numbers(1000)")).rows) == 1000


async def test_an_error_quotes_the_callers_own_words_alone(analysts: Analysts) -> None:
    outcome = await analysts.ask("SELECT wrongname FROM memory")
    assert outcome.error is not None
    assert outcome.error.detail == {"cause": "UNKNOWN_IDENTIFIER", "name": "wrongname"}
    for sql in (
        "SELECT toUInt64(memory_key) FROM memory",
        "SELECT toDate(memory_key) FROM memory WHERE toUInt8(kind) = 1",
        "SELECT CAST(memory_key AS UUID) FROM memory",
        "SELECT memory_kee FROM memory",
        "SELECT memory_key + 1 FROM memory",
        "SELECT memory_key FROM memory GROUP BY kind",
        "SELECT sum(memory_key) FROM memory",
    ):
        outcome = await analysts.ask(sql)
        assert outcome.reason == "QUERY_REJECTED"
        assert "own-" not in outcome.shown(), outcome.shown()
        assert "Maybe you meant" not in outcome.shown()
        analysts.assert_clean(outcome)


async def test_a_scope_that_is_expired_forged_or_anothers_reads_nothing(analysts: Analysts) -> None:
    key = analysts.engine.analyst_key
    soon = int(time.time()) + 60
    good = SignedScope("acme", ("main",), soon, "x")
    signature = key.sign(good)[:64]
    foreign = SignedScope("umbra", ("main",), soon, "x").payload()
    comments = {
        "expired": key.sign(SignedScope("acme", ("main",), int(time.time()) - 1, "x")),
        "under another key": AnalystKey().sign(good),
        "a signature over another scope": f"{signature} {foreign}",
        "a signature of zeros": f"{'0' * 64} {foreign}",
        "no signature": foreign,
        "a signature alone": signature,
        "empty": "",
        "not JSON": f"{signature} [[[",
        "numbers for texts": f"{signature} " + '{"org":1,"ns":2,"exp":"x"}',
        "quotes": "' OR 1=1 --",
        "the reserved scope": key.sign(SignedScope("", ("",), soon, "x")),
        "no namespace": key.sign(SignedScope("acme", (), soon, "x")),
        "a pattern for a namespace": key.sign(SignedScope("acme", ("%", "*"), soon, "x")),
    }
    for name, comment in comments.items():
        counted = await analysts.analyst.run_unsigned("SELECT count() FROM memory", comment)
        assert counted.strip() == b"0", name
    assert (await analysts.analyst.run_unsigned("SELECT count() FROM memory", key.sign(good))).strip() == b"5"


async def test_names_that_look_like_parts_of_the_scope_stay_names(analysts: Analysts) -> None:
    for name in ('x","ns":["main"],"org":"umbra', "umbra\\", "'", "acme' OR 1=1 --", "ÅÄÖ", "main\n"):
        assert (await analysts.ask("SELECT count() FROM memory", AnalysisScope(name, ("main",)))).rows == [[0]]
        assert (await analysts.ask("SELECT count() FROM memory", AnalysisScope("acme", (name,)))).rows == [[0]]


async def test_one_statement_of_two_organisations_at_once_keeps_each_in_its_own(analysts: Analysts) -> None:
    sql = "SELECT org, groupUniqArray(memory_key) FROM memory GROUP BY org"
    answers = await asyncio.gather(*(analysts.ask(sql, scope) for _ in range(20) for scope in (OWN, FOREIGN)))
    for place, outcome in enumerate(answers):
        assert [row[0] for row in outcome.rows] == [("acme", "umbra")[place % 2]]


async def test_a_statement_after_one_that_failed_or_was_cancelled_gets_its_own_rows_alone(analysts: Analysts) -> None:
    long = f"SELECT count() {MANY_PAIRS}"
    for _ in range(3):
        running = asyncio.create_task(analysts.ask(long, FOREIGN))
        await asyncio.sleep(0)
        failed = await analysts.ask("SELECT memory_key, toUInt64(memory_key) FROM memory", FOREIGN)
        assert failed.reason == "QUERY_REJECTED"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        outcome = await analysts.ask("SELECT memory_key FROM memory ORDER BY memory_key")
        assert [key for (key,) in outcome.rows] == OWN_KEYS


async def test_rows_read_show_nothing_of_how_much_others_hold(analysts: Analysts) -> None:
    # An organisation that exists and one that does not take the same way: the filter leaves out their granules.
    present = await analysts.ask("SELECT count() FROM memory WHERE org = 'umbra'")
    absent = await analysts.ask("SELECT count() FROM memory WHERE org = 'nowhere'")
    assert present.rows == absent.rows == [[0]]


async def test_every_form_of_an_answer_holds_the_same_rows_and_no_canary(analysts: Analysts) -> None:
    import pyarrow.ipc

    sql = "SELECT org, memory_key, kind, created_at FROM memory ORDER BY memory_key"
    rows, csv, arrow = [await analysts.ask(sql, form=form) for form in ("rows", "csv", "arrow")]
    assert csv.answer is not None
    assert arrow.answer is not None
    for outcome in (rows, csv):
        analysts.assert_clean(outcome)
    table = pyarrow.ipc.open_stream(arrow.answer.arrow).read_all()
    assert not [word for word in analysts.forbidden(sql) if word in str(table.to_pydict())]
    assert table.column("memory_key").to_pylist() == [row[1] for row in rows.rows] == OWN_KEYS
    assert [line.split(",")[1].strip('"') for line in csv.answer.csv.splitlines()[1:]] == OWN_KEYS
    assert csv.answer.row_count == arrow.answer.row_count == len(OWN_KEYS)


async def test_a_table_that_loses_its_filter_or_a_grant_that_is_too_wide_ends_analysis(analysts: Analysts) -> None:
    await analysts.boundary.probe()
    # An admin's handle stands in for an analyst that sees everything.
    admin = type(analysts.analyst)(analysts.engine, analysis.DATABASE, AnalystKey(), places=1)
    admin._open_analyst = analysts.engine.open_handle  # type: ignore[method-assign]  # what a broken users file does
    admin._analysts.open_handle = analysts.engine.open_handle
    boundary = type(analysts.boundary)(admin, analysis.LIMITS)
    try:
        with pytest.raises(BoundaryBroken):
            await boundary.probe()
    finally:
        await boundary.close()


async def test_a_failure_below_the_boundary_says_its_name_and_code_alone(analysts: Analysts) -> None:
    with pytest.raises(AnalystFailure) as caught:
        await analysts.analyst.run_unsigned("SELECT value FROM memory", "x")
    assert str(caught.value) == "ACCESS_DENIED (497)"
