"""Running statements: how many at once, when none, and what an answer and a failure say."""

import asyncio
from contextlib import nullcontext

import pytest

from loom_common.auth.claims import Claims, NamespaceGrant, Role
from loom_common.auth.directory import FakeDirectory
from loom_common.call import Scope
from loom_common.clock import SystemClock
from loom_common.errors import AnalysisUnavailable, AuthInsufficient, Overloaded, QueryLimit, QueryRejected
from loom_common.ops import all_ops
from loom_insights.api.insights import MAX_VALUES, analysed_to_proto
from loom_insights.app.analysis import Analysed, Analyses
from loom_insights.app.availability import Availability
from loom_insights.app.namespaces import ReadableNamespaces
from loom_insights.domain.analysis import AnalysisAnswer, AnalysisLimits, AnalysisScope, ResultColumn, one_statement
from loom_insights.domain.boundary import BoundaryBroken, BoundaryKind, BoundarySilent, Statement
from loom_insights.domain.failures import failure
from loom_insights.domain.results import read_answer

CLAIMS = Claims(
    sub="sa:bot", org="acme", namespaces=(NamespaceGrant("main", Role.VIEWER), NamespaceGrant("legal", Role.VIEWER)),
    jti="1", iat=0, exp=1e12,
)  # fmt: skip
MAIN = Scope("acme", "main")


class Boundary:
    """Answers when it is let to, and checks as it is told."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.seen: list[Statement] = []
        self.finding: Exception | None = None
        self.checks = 0
        self._arrived = asyncio.Condition()

    @property
    def kind(self) -> BoundaryKind:
        return "embedded"

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(5), self._arrived:
            await self._arrived.wait_for(lambda: len(self.seen) >= count)

    async def run(self, statement: Statement) -> AnalysisAnswer:
        self.seen.append(statement)
        async with self._arrived:
            self._arrived.notify_all()
        await self.gate.wait()
        return AnalysisAnswer(row_count=1)

    async def probe(self) -> None:
        self.checks += 1
        if self.finding is not None:
            raise self.finding

    async def close(self) -> None:
        pass


def analyses(boundary: Boundary, availability: Availability | None = None) -> Analyses:
    known = availability or Availability(boundary, 60, SystemClock())
    readable = ReadableNamespaces(all_ops()["insights.query"], FakeDirectory())
    return Analyses(boundary, known, readable, per_org=2, together=3)


async def test_a_statement_reads_the_namespaces_that_its_caller_may_and_is_known_by_its_digest() -> None:
    boundary = Boundary()
    done = await analyses(boundary).query(CLAIMS, MAIN, ["legal", "main"], "SELECT 1;\n", "rows")
    assert done.namespaces == ("main", "legal")
    assert boundary.seen[0].sql == "SELECT 1"
    assert done.digest == (await analyses(boundary).query(CLAIMS, MAIN, [], "SELECT 1", "rows")).digest
    with pytest.raises(AuthInsufficient):
        await analyses(boundary).query(CLAIMS, MAIN, ["secret"], "SELECT 1", "rows")
    assert len(boundary.seen) == 2


async def test_an_organisation_has_its_own_places_and_all_share_the_rest() -> None:
    boundary = Boundary()
    one = analyses(boundary)
    await one.query(CLAIMS, MAIN, [], "SELECT 1", "rows")
    boundary.gate.clear()
    running = [asyncio.create_task(one.query(CLAIMS, MAIN, [], "SELECT 1", "rows")) for _ in range(2)]
    other = asyncio.create_task(one.query(CLAIMS, Scope("umbra", "main"), [], "SELECT 1", "rows"))
    await boundary.reached(4)
    for org in ("acme", "third"):
        with pytest.raises(Overloaded):
            await one.query(CLAIMS, Scope(org, "main"), [], "SELECT 1", "rows")
    boundary.gate.set()
    await asyncio.gather(*running, other)
    await one.query(CLAIMS, MAIN, [], "SELECT 1", "rows")


async def test_nothing_runs_behind_a_boundary_that_was_not_seen_to_hold() -> None:
    boundary = Boundary()
    availability = Availability(boundary, 60, SystemClock())
    for finding, raised in (
        (BoundaryBroken("a leak"), AnalysisUnavailable),
        (BoundarySilent("away"), AnalysisUnavailable),
    ):
        boundary.finding = finding
        await availability.check()
        with pytest.raises(raised):
            await analyses(boundary, availability).query(CLAIMS, MAIN, [], "SELECT 1", "rows")
    assert not boundary.seen
    assert [problem.code for problem in availability.problems()] == ["analysis_unavailable"]
    boundary.finding = None
    await availability.check()
    assert availability.holds
    assert not availability.problems()
    await analyses(boundary, availability).query(CLAIMS, MAIN, [], "SELECT 1", "rows")


async def test_a_boundary_that_gave_no_answer_is_asked_again_by_the_next_statement() -> None:
    boundary = Boundary()
    boundary.finding = BoundarySilent("away")
    availability = Availability(boundary, 60, SystemClock())
    with pytest.raises(Overloaded):
        await analyses(boundary, availability).query(CLAIMS, MAIN, [], "SELECT 1", "rows")
    boundary.finding = None
    await analyses(boundary, availability).query(CLAIMS, MAIN, [], "SELECT 1", "rows")
    assert boundary.checks == 2


def test_the_reserved_scope_is_nobodys() -> None:
    for org, namespaces in (("", ("main",)), ("acme", ()), ("acme", ("",)), ("acme", ("main", ""))):
        with pytest.raises(ValueError, match="reserved"):
            AnalysisScope(org, namespaces)


@pytest.mark.parametrize("sql", ["", "  ", ";", " ;\n", "SELECT '\0'"])
def test_a_statement_that_says_nothing_is_refused(sql: str) -> None:
    with pytest.raises(QueryRejected):
        one_statement(sql)


@pytest.mark.parametrize(
    ("name", "text", "raised"),
    [
        ("TIMEOUT_EXCEEDED", "", QueryLimit),
        ("MEMORY_LIMIT_EXCEEDED", "(for query) limit", QueryLimit),
        ("MEMORY_LIMIT_EXCEEDED", "(total) memory limit exceeded", Overloaded),
        ("TOO_MANY_SIMULTANEOUS_QUERIES", "", Overloaded),
        ("SOMETHING_NEW", "row 'secret' at /var/lib", QueryRejected),
        ("UNKNOWN_IDENTIFIER", "`secret` in scope of log_comment filter `kind`", QueryRejected),
        ("UNKNOWN_IDENTIFIER", "Maybe you meant: ['secret']", QueryRejected),
    ],
)
def test_a_failure_says_nothing_that_the_caller_did_not(name: str, text: str, raised: type[Exception]) -> None:
    error = failure(name, text, "SELECT kind FROM memory", AnalysisLimits())
    assert isinstance(error, raised)
    assert "secret" not in f"{error}{error.detail}"
    assert "/var" not in f"{error}{error.detail}"


def test_an_answer_of_more_values_than_a_message_holds_is_a_limit() -> None:
    columns = (ResultColumn("a", "UInt8"), ResultColumn("b", "UInt8"))
    for rows, whole in ((MAX_VALUES // 2, True), (MAX_VALUES // 2 + 1, False)):
        answer = AnalysisAnswer(columns=columns, rows=[[1, 2]] * rows, row_count=rows)
        with nullcontext() if whole else pytest.raises(QueryLimit):
            assert len(analysed_to_proto(Analysed(answer, ("main",), "d", 8)).rows) == rows


def test_an_answer_keeps_numbers_that_json_holds_and_writes_the_others_out() -> None:
    data = b'["a","b"]\n["UInt64","Array(UInt64)"]\n[9007199254740992,[9007199254740993]]\n[true,[]]\n'
    answer = read_answer("rows", data, 1.0)
    assert answer.rows == [[9007199254740992, ["9007199254740993"]], [True, []]]
    csv = read_answer("csv", b'"a\nb"\n"String"\n"x\n,y"\n"z"\n', 1.0)
    assert csv.csv == '"a\nb"\n"x\n,y"\n"z"\n'
    assert (csv.row_count, csv.columns[0].name) == (2, "a\nb")
