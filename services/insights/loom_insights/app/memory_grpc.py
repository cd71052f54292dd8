"""Memory over gRPC."""

from collections.abc import Sequence
from datetime import datetime
from typing import cast

import grpc.aio

from loom.memory.v1 import guide_pb2, guide_pb2_grpc, inventory_pb2, inventory_pb2_grpc
from loom_common.call import Scope
from loom_common.times import format_time
from loom_insights.domain.namespace import (
    Activity,
    Finding,
    Findings,
    Group,
    Guide,
    Inventory,
    Severity,
    Subject,
    Totals,
    Writer,
)


class GrpcMemoryFacts:
    """Asks memory. A `MemoryFacts`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._inventory = inventory_pb2_grpc.InventoryServiceStub(channel)
        self._guides = guide_pb2_grpc.GuideServiceStub(channel)

    async def inventory(self, scope: Scope, by: Sequence[str], limit: int) -> Inventory:
        """See `MemoryFacts.inventory`."""
        request = inventory_pb2.CountInventoryRequest(org=scope.org, namespace=scope.namespace, by=by, limit=limit)
        answer = await self._inventory.CountInventory(request)
        groups = (
            Group(group.by, tuple((each.name, each.count) for each in group.names), group.name_count, group.total_count)
            for group in answer.groups
        )
        return Inventory(_totals(answer), tuple(groups), answer.read_at)

    async def activity(self, scope: Scope, since: datetime, until: datetime, limit: int) -> Activity:
        """See `MemoryFacts.activity`."""
        answer = await self._inventory.CountActivity(
            inventory_pb2.CountActivityRequest(
                org=scope.org,
                namespace=scope.namespace,
                since=format_time(since),
                until=format_time(until),
                limit=limit,
            )
        )
        return Activity(
            tuple(Writer(each.actor, each.agent, each.new_count, each.rewritten_count) for each in answer.writers),
            answer.shown_memory_count if answer.HasField("shown_memory_count") else None,
            answer.conflict_found_count,
            answer.conflict_resolved_count,
        )

    async def findings(self, scope: Scope, agent: str = "") -> Findings:
        """See `MemoryFacts.findings`."""
        request = guide_pb2.ListFindingsRequest(org=scope.org, namespace=scope.namespace, agent=agent)
        answer = await self._guides.ListFindings(request)
        return Findings(tuple(_finding(each) for each in answer.findings), answer.computed_at, answer.enabled)

    async def guide(self, scope: Scope) -> Guide:
        """See `MemoryFacts.guide`."""
        request = guide_pb2.GetNamespaceGuideRequest(org=scope.org, namespace=scope.namespace)
        answer = await self._guides.GetNamespaceGuide(request)
        if not answer.found:
            return Guide(current=answer.current_version)
        return Guide(answer.guide.text, answer.guide.version, answer.current_version)


def _totals(answer: inventory_pb2.CountInventoryResponse) -> Totals:
    return Totals(
        memories=answer.memory_count,
        users=answer.user_count,
        sessions=answer.session_count,
        agents=answer.agent_count,
        pinned=answer.pinned_count,
        ended=answer.ended_count,
        open_conflicts=answer.open_conflict_count,
        documents=answer.document_count,
        document_bytes=answer.document_bytes,
        first_write_at=answer.first_write_at,
        last_write_at=answer.last_write_at,
    )


def _finding(finding: guide_pb2.Finding) -> Finding:
    return Finding(
        finding.kind,
        cast(Severity, finding.severity),
        finding.count,
        finding.message,
        finding.advice,
        tuple(Subject(each.key, each.user_id, each.session_id, each.agent) for each in finding.subjects),
    )
