"""Namespace reads, costs, mentor and help over real servers and the real ledger, and who may read what."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from support.grpc import Deployment, bearer, reason_of

from loom.insights.v1 import (
    help_pb2,
    help_pb2_grpc,
    mentor_pb2,
    mentor_pb2_grpc,
    namespace_pb2,
    namespace_pb2_grpc,
    usage_pb2,
    usage_pb2_grpc,
)
from loom_common.auth.claims import ReadScope
from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.clock import FakeClock
from loom_common.migrations import migrate
from loom_insights.app.memory import FakeMemoryFacts
from loom_insights.app.usage import UsageAccounts
from loom_insights.domain.ledger import LedgerEntry
from loom_insights.domain.namespace import (
    Activity,
    Finding,
    Findings,
    Group,
    Guide,
    Inventory,
    Subject,
    Totals,
    Writer,
)
from loom_insights.reads_wiring import read_services
from loom_insights.store.agent_events import AgentEventRepository

NOW: Final = datetime(2026, 11, 30, 12, tzinfo=UTC)
KINDS: Final = Group("kind", (("fact", 7), ("note", 2)), 4, 12)
FINDINGS: Final = Findings(
    (
        Finding("unresolved_conflicts", "warning", 1, "One waits.", "Settle it.", (Subject("k", "ana"),)),
        Finding("stale_facts", "hint", 2, "Two are old.", "Look.", ()),
    ),
    "2026-11-30T11:00:00.000Z",
)
FACTS: Final = FakeMemoryFacts(
    Inventory(Totals(memories=12, documents=1), (KINDS,), "2026-11-30T12:00:00.000Z"),
    activity=Activity((Writer("process:bot", "bot", 3, 1),), 5, 2, 1),
    findings=FINDINGS,
    guide=Guide("# Guide", 2, 2),
)


class Reads:
    """The services of one deployment, and their stubs."""

    def __init__(self, deployment: Deployment, channel: grpc.aio.Channel) -> None:
        self.deployment = deployment
        self.usage = usage_pb2_grpc.UsageServiceStub(channel)
        self.namespace = namespace_pb2_grpc.NamespaceServiceStub(channel)
        self.mentor = mentor_pb2_grpc.MentorServiceStub(channel)
        self.help = help_pb2_grpc.HelpServiceStub(channel)

    def as_(self, *grants: str, **more: Any) -> Any:
        return bearer(self.deployment.token(*grants, **more))


def row(op: str, *, namespace: str = "default", org: str = "acme", hours_ago: float = 1, **more: Any) -> LedgerEntry:
    at = NOW - timedelta(hours=hours_ago)
    entry = LedgerEntry("r", "memory", at, org, namespace, op, "grpc", "sa:bot", "", "", "", "ok", False, 1.0)
    return replace(entry, **more)


ROWS: Final = (
    row("memory.ask", upstream_cost_usd=0.5, model="big", llm_calls=2, input_tokens=100, output_tokens=7),
    row("memory.ask", upstream_cost_usd=0.25, model="small", hours_ago=30, out_llm_cache_saved_usd=0.125),
    row("memory.search", out_hits=0, embedding_tokens=5, upstream_cost_usd=0.125, model="embedder"),
    row("memory.search", out_hits=3, subject="sa:other"),
    row("memory.set", status="RATE_LIMITED", refused=True),
    row("memory.ask", namespace="team", upstream_cost_usd=8, model="big"),
    row("memory.ask", namespace="secret", upstream_cost_usd=32, model="canary"),
    row("memory.ask", org="umbra", upstream_cost_usd=64, model="canary"),
    row("memory.ask", hours_ago=24 * 40, upstream_cost_usd=128, model="old"),
)


@asynccontextmanager
async def reads_over(clickhouse: ClickHouse, tmp_path: Path) -> AsyncIterator[Reads]:
    await migrate(clickhouse, "insights", "loom_insights")
    ledger = AgentEventRepository(clickhouse)
    await ledger.add(ROWS)
    deployment, clock = Deployment(tmp_path), FakeClock(NOW)
    services = read_services(clickhouse, FACTS, deployment.directory, UsageAccounts(ledger, clock), clock)
    async with (
        deployment.serving(*services, name="insights") as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield Reads(deployment, channel)


@pytest.fixture
async def reads(clickhouse: ClickHouse, tmp_path: Path) -> AsyncIterator[Reads]:
    async with reads_over(clickhouse, tmp_path) as opened:
        yield opened


async def refusal(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return reason_of(caught.value)


async def test_costs_are_summed_by_day_operation_model_and_namespace_dearest_first(reads: Reads) -> None:
    viewer = reads.as_("default:viewer", "team:viewer")
    answer = await reads.usage.SumCosts(usage_pb2.SumCostsRequest(namespaces=["team"]), metadata=viewer)
    told = [(each.day, each.op, each.model, each.namespace, each.cost_usd) for each in answer.rows]
    assert told[:4] == [
        ("2026-11-30", "memory.ask", "big", "team", 8.0),
        ("2026-11-30", "memory.ask", "big", "default", 0.5),
        ("2026-11-29", "memory.ask", "small", "default", 0.25),
        ("2026-11-30", "memory.search", "embedder", "default", 0.125),
    ]
    assert (answer.total.cost_usd, answer.total.saved_usd, answer.total.call_count) == (8.875, 0.125, 6)
    assert (answer.truncated, list(answer.namespaces)) == (False, ["default", "team"])
    by_model = usage_pb2.SumCostsRequest(group_by=["model"], since="2026-11-30")
    answer = await reads.usage.SumCosts(by_model, metadata=viewer)
    assert [(each.model, each.day, each.cost_usd, each.input_tokens) for each in answer.rows] == [
        ("big", "", 0.5, 100.0),
        ("embedder", "", 0.125, 0.0),
        ("", "", 0.0, 0.0),
    ]


async def test_costs_of_a_namespace_that_one_may_not_read_are_refused(reads: Reads) -> None:
    async def costs(*namespaces: str, as_: Any = None, **more: Any) -> str:
        request = usage_pb2.SumCostsRequest(namespaces=namespaces, **more)
        return await refusal(reads.usage.SumCosts(request, metadata=as_ or reads.as_("default:viewer")))

    assert await costs("team") == await costs("nothing-of-the-sort") == "AUTH_INSUFFICIENT"
    assert await costs("secret", as_=reads.as_("*:viewer"), namespace="default") == "NOT_FOUND"
    assert await costs("a\0b") == "INVALID_ARGUMENT"
    assert await costs(org="umbra") in ("NOT_FOUND", "AUTH_INSUFFICIENT")
    assert await costs(group_by=["subject"]) == "INVALID_ARGUMENT"
    assert await costs(since="2026-12-01", until="2026-11-01") == "INVALID_ARGUMENT"
    assert await costs(since="1' OR 1=1") == "INVALID_ARGUMENT"


async def test_a_summary_puts_memory_and_the_last_week_of_the_ledger_together(reads: Reads) -> None:
    answer = await reads.namespace.SummarizeNamespace(
        namespace_pb2.SummarizeNamespaceRequest(), metadata=reads.as_("default:viewer")
    )
    assert (answer.totals.memory_count, answer.guide_version, answer.warning_count, answer.hint_count) == (12, 2, 1, 1)
    assert [(each.name, each.count) for each in answer.kinds] == [("fact", 7), ("note", 2)]
    assert (answer.week_call_count, answer.week_error_count, answer.week_cost_usd) == (5, 1, 0.875)
    assert FACTS.asked[-1] == Scope("acme", "default")


async def test_an_inventory_sums_the_names_that_it_does_not_show(reads: Reads) -> None:
    answer = await reads.namespace.ListInventory(
        namespace_pb2.ListInventoryRequest(), metadata=reads.as_("default:viewer")
    )
    (group,) = answer.groups
    assert (group.by, group.name_count, group.other_count) == ("kind", 4, 3)


async def test_an_audit_tells_who_called_what_failed_and_what_was_not_found(reads: Reads) -> None:
    answer = await reads.namespace.AuditNamespace(
        namespace_pb2.AuditNamespaceRequest(days=1), metadata=reads.as_("default:viewer")
    )
    assert (answer.since, answer.until) == ("2026-11-29T12:00:00.000Z", "2026-11-30T12:00:00.000Z")
    assert [(each.subject, each.call_count, each.error_count, each.cost_usd) for each in answer.callers] == [
        ("sa:bot", 3, 1, 0.625),
        ("sa:other", 1, 0, 0.0),
    ]
    assert [(each.op, each.reason, each.count) for each in answer.failures] == [("memory.set", "RATE_LIMITED", 1)]
    assert (answer.search_count, answer.empty_search_count, answer.shown_memory_count) == (2, 1, 5)
    assert [(each.actor, each.new_count, each.rewritten_count) for each in answer.writers] == [("process:bot", 3, 1)]
    assert [each.kind for each in answer.findings] == ["unresolved_conflicts", "stale_facts"]


async def test_tuning_drafts_changes_and_the_mentor_names_what_is_not_right(reads: Reads) -> None:
    viewer = reads.as_("default:viewer")
    tuned = await reads.namespace.TuneNamespace(namespace_pb2.TuneNamespaceRequest(), metadata=viewer)
    assert [(draft.kind, draft.op) for draft in tuned.drafts] == [
        ("unresolved_conflicts", "memory.conflicts"),
        ("stale_facts", ""),
    ]
    brief = await reads.mentor.BriefMentor(mentor_pb2.BriefMentorRequest(), metadata=viewer)
    assert (brief.warning_count, brief.enabled, brief.computed_at) == (1, True, "2026-11-30T11:00:00.000Z")
    assert [(each.key, each.user_id) for each in brief.findings[0].subjects] == [("k", "ana")]


async def test_a_namespace_is_told_to_nobody_who_may_not_read_it_whole(reads: Reads) -> None:
    calls: dict[str, Any] = {
        "summary": (reads.namespace.SummarizeNamespace, namespace_pb2.SummarizeNamespaceRequest),
        "inventory": (reads.namespace.ListInventory, namespace_pb2.ListInventoryRequest),
        "audit": (reads.namespace.AuditNamespace, namespace_pb2.AuditNamespaceRequest),
        "tune": (reads.namespace.TuneNamespace, namespace_pb2.TuneNamespaceRequest),
        "brief": (reads.mentor.BriefMentor, mentor_pb2.BriefMentorRequest),
        "costs": (reads.usage.SumCosts, usage_pb2.SumCostsRequest),
    }
    asked = len(FACTS.asked)
    narrowed = reads.as_("default:viewer", read_scope=ReadScope.OWN_USER, user_id="ana")
    for name, (call, request) in calls.items():
        elsewhere = [call(request(namespace=each), metadata=reads.as_("default:admin")) for each in ("team", "none")]
        assert [await refusal(each) for each in elsewhere] == ["AUTH_INSUFFICIENT", "AUTH_INSUFFICIENT"], name
        assert await refusal(call(request(namespace="secret"), metadata=reads.as_("*:admin"))) == "NOT_FOUND", name
        assert await refusal(call(request(), metadata=narrowed)) == "AUTH_INSUFFICIENT", name
        assert await refusal(call(request())) == "UNAUTHENTICATED", name
    assert len(FACTS.asked) == asked


async def test_help_answers_any_token_alike_and_nobody_without_one(reads: Reads) -> None:
    search = help_pb2.SearchHelpRequest(query="how do I delete a memory?", top_k=3)
    tokens = [
        reads.as_("default:viewer"),
        reads.as_("team:viewer", read_scope=ReadScope.OWN_USER, user_id="ana"),
        reads.as_("main:viewer", org="umbra"),
    ]
    answers = [await reads.help.SearchHelp(search, metadata=token) for token in tokens]
    assert answers[0].available
    assert len(answers[0].hits) == 3
    assert answers[1:] == [answers[0], answers[0]]
    assert await refusal(reads.help.SearchHelp(search)) == "UNAUTHENTICATED"
    hit = answers[0].hits[0]
    section = await reads.help.GetHelp(help_pb2.GetHelpRequest(page=hit.page, anchor=hit.anchor), metadata=tokens[0])
    assert section.found
    assert section.breadcrumb == hit.breadcrumb
    guide = await reads.mentor.GetWritingGuide(mentor_pb2.GetWritingGuideRequest(), metadata=tokens[2])
    assert (guide.available, guide.page) == (True, "user/writing.md")
    assert guide.text.startswith("# Writing memories well")
    keys = await reads.mentor.GetWritingGuide(mentor_pb2.GetWritingGuideRequest(section="keys"), metadata=tokens[2])
    assert (keys.found, keys.text.splitlines()[0]) == (True, "## Keys")
    missed = await reads.mentor.GetWritingGuide(mentor_pb2.GetWritingGuideRequest(section="../x"), metadata=tokens[2])
    assert (missed.available, missed.found, missed.text) == (True, False, "")


async def test_a_question_for_help_is_a_digest_in_the_ledger_and_strange_ones_are_refused_or_find_nothing(
    reads: Reads,
) -> None:
    viewer = reads.as_("default:viewer")
    await reads.help.SearchHelp(help_pb2.SearchHelpRequest(query="my canary question"), metadata=viewer)
    assert "canary" not in json.dumps([str(entry) for entry in reads.deployment.ledger.entries])
    for query in ("", "x" * 1025):
        call = reads.help.SearchHelp(help_pb2.SearchHelpRequest(query=query), metadata=viewer)
        assert await refusal(call) == "INVALID_ARGUMENT"
    for page in ("../../etc/passwd", "user/../../README.md", "\\..\\x", "user/memories.md%00"):
        answer = await reads.help.GetHelp(help_pb2.GetHelpRequest(page=page), metadata=viewer)
        assert (answer.available, answer.found, answer.text) == (True, False, "")
