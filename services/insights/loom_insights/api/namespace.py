"""`loom.insights.v1.NamespaceService`."""

from datetime import timedelta
from typing import Final

import grpc
from google.protobuf.struct_pb2 import Struct

from loom.insights.v1 import namespace_pb2 as pb
from loom.insights.v1 import namespace_pb2_grpc as pb_grpc
from loom_common import call
from loom_common.times import format_time
from loom_insights.api.findings import finding_to_proto
from loom_insights.app.reads import NamespaceReads
from loom_insights.domain.namespace import Audit, Draft, Group, Summary, Totals

_NAMES: Final = 20
_DAYS: Final = 7


class NamespaceServicer(pb_grpc.NamespaceServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, reads: NamespaceReads) -> None:
        self._reads = reads

    async def SummarizeNamespace(
        self,
        request: pb.SummarizeNamespaceRequest,
        context: grpc.aio.ServicerContext[pb.SummarizeNamespaceRequest, pb.SummarizeNamespaceResponse],
    ) -> pb.SummarizeNamespaceResponse:
        """See the contract."""
        return _summary_to_proto(await self._reads.summary(call.scope()))

    async def ListInventory(
        self,
        request: pb.ListInventoryRequest,
        context: grpc.aio.ServicerContext[pb.ListInventoryRequest, pb.ListInventoryResponse],
    ) -> pb.ListInventoryResponse:
        """See the contract."""
        limit = request.limit if request.HasField("limit") else _NAMES
        inventory = await self._reads.inventory(call.scope(), limit)
        return pb.ListInventoryResponse(
            totals=_totals_to_proto(inventory.totals),
            groups=[_group_to_proto(group) for group in inventory.groups],
            read_at=inventory.read_at,
        )

    async def AuditNamespace(
        self,
        request: pb.AuditNamespaceRequest,
        context: grpc.aio.ServicerContext[pb.AuditNamespaceRequest, pb.AuditNamespaceResponse],
    ) -> pb.AuditNamespaceResponse:
        """See the contract."""
        days = request.days if request.HasField("days") else _DAYS
        return _audit_to_proto(await self._reads.audit(call.scope(), timedelta(days=days)))

    async def TuneNamespace(
        self,
        request: pb.TuneNamespaceRequest,
        context: grpc.aio.ServicerContext[pb.TuneNamespaceRequest, pb.TuneNamespaceResponse],
    ) -> pb.TuneNamespaceResponse:
        """See the contract."""
        drafts, read_at = await self._reads.tune(call.scope())
        return pb.TuneNamespaceResponse(drafts=[_draft_to_proto(draft) for draft in drafts], read_at=read_at)


def _summary_to_proto(summary: Summary) -> pb.SummarizeNamespaceResponse:
    found = summary.findings
    warnings = sum(finding.severity == "warning" for finding in found.findings)
    return pb.SummarizeNamespaceResponse(
        totals=_totals_to_proto(summary.inventory.totals),
        kinds=_rows_to_proto(summary.inventory.group("kind")),
        guide_version=summary.guide.version,
        warning_count=warnings if found.enabled else None,
        hint_count=len(found.findings) - warnings if found.enabled else None,
        week_call_count=summary.week.calls,
        week_error_count=summary.week.errors,
        week_cost_usd=summary.week.cost_usd,
        read_at=summary.inventory.read_at,
    )


def _audit_to_proto(audit: Audit) -> pb.AuditNamespaceResponse:
    return pb.AuditNamespaceResponse(
        since=format_time(audit.since),
        until=format_time(audit.until),
        writers=[
            pb.WriterRow(actor=each.actor, agent=each.agent, new_count=each.new, rewritten_count=each.rewritten)
            for each in audit.activity.writers
        ],
        callers=[
            pb.CallerRow(subject=each.subject, call_count=each.calls, error_count=each.errors, cost_usd=each.cost_usd)
            for each in audit.callers
        ],
        failures=[pb.FailureRow(op=each.op, reason=each.reason, count=each.count) for each in audit.failures],
        search_count=audit.searches.count,
        empty_search_count=audit.searches.empty,
        shown_memory_count=audit.activity.shown,
        conflict_found_count=audit.activity.conflicts_found,
        conflict_resolved_count=audit.activity.conflicts_resolved,
        findings=[finding_to_proto(finding) for finding in audit.findings.findings],
    )


def _totals_to_proto(totals: Totals) -> pb.NamespaceTotals:
    return pb.NamespaceTotals(
        memory_count=totals.memories,
        user_count=totals.users,
        session_count=totals.sessions,
        agent_count=totals.agents,
        pinned_count=totals.pinned,
        ended_count=totals.ended,
        open_conflict_count=totals.open_conflicts,
        document_count=totals.documents,
        document_bytes=totals.document_bytes,
        first_write_at=totals.first_write_at,
        last_write_at=totals.last_write_at,
    )


def _group_to_proto(group: Group) -> pb.InventoryGroup:
    return pb.InventoryGroup(by=group.by, rows=_rows_to_proto(group), name_count=group.names, other_count=group.other)


def _rows_to_proto(group: Group) -> list[pb.InventoryRow]:
    return [pb.InventoryRow(name=name, count=count) for name, count in group.counts]


def _draft_to_proto(draft: Draft) -> pb.TuneDraft:
    arguments = Struct()
    arguments.update(draft.arguments)
    return pb.TuneDraft(
        kind=draft.kind,
        severity=draft.severity,
        reason=draft.reason,
        change=draft.change,
        op=draft.op,
        arguments=arguments if draft.op else None,
    )
