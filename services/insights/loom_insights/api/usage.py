"""`loom.insights.v1.UsageService`."""

from typing import cast

import grpc

from loom.insights.v1 import usage_pb2 as pb
from loom.insights.v1 import usage_pb2_grpc as pb_grpc
from loom_common import call
from loom_common.errors import InternalError
from loom_common.times import format_time, parse_optional_time
from loom_insights.app.usage import CostReports, UsageAccounts
from loom_insights.domain.costs import Cost, CostBy
from loom_insights.domain.usage import GroupBy, UsageGroup


class UsageServicer(pb_grpc.UsageServiceServicer):
    """Shows what calls spent."""

    def __init__(self, accounts: UsageAccounts, costs: CostReports) -> None:
        self._accounts = accounts
        self._costs = costs

    async def SummarizeUsage(
        self,
        request: pb.SummarizeUsageRequest,
        context: grpc.aio.ServicerContext[pb.SummarizeUsageRequest, pb.SummarizeUsageResponse],
    ) -> pb.SummarizeUsageResponse:
        """Translates, delegates, translates back."""
        span, groups = await self._accounts.summarize(
            call.scope(),
            parse_optional_time(request.since, "since"),
            parse_optional_time(request.until, "until"),
            cast(GroupBy, request.group_by or "op"),
        )
        return pb.SummarizeUsageResponse(
            rows=[group_to_proto(group) for group in groups],
            since=format_time(span.since),
            until=format_time(span.until),
        )

    async def SumCosts(
        self,
        request: pb.SumCostsRequest,
        context: grpc.aio.ServicerContext[pb.SumCostsRequest, pb.SumCostsResponse],
    ) -> pb.SumCostsResponse:
        """Translates, delegates, translates back."""
        claims = call.current().claims
        if claims is None:
            raise InternalError("A call for costs came without its caller.")
        span, namespaces, report = await self._costs.report(
            claims,
            call.scope(),
            request.namespaces,
            parse_optional_time(request.since, "since"),
            parse_optional_time(request.until, "until"),
            [cast(CostBy, each) for each in dict.fromkeys(request.group_by)],
        )
        return pb.SumCostsResponse(
            rows=[cost_to_proto(cost) for cost in report.rows],
            total=cost_to_proto(report.total),
            truncated=report.truncated,
            since=format_time(span.since),
            until=format_time(span.until),
            namespaces=namespaces,
        )


def cost_to_proto(cost: Cost) -> pb.CostRow:
    """Returns what one group spent as the contract shows it."""
    return pb.CostRow(
        day=cost.day,
        op=cost.op,
        model=cost.model,
        namespace=cost.namespace,
        call_count=cost.calls,
        embedding_tokens=cost.embedding_tokens,
        input_tokens=cost.input_tokens,
        cached_tokens=cost.cached_tokens,
        output_tokens=cost.output_tokens,
        llm_call_count=cost.llm_calls,
        cost_usd=cost.cost_usd,
        saved_usd=cost.saved_usd,
    )


def group_to_proto(group: UsageGroup) -> pb.UsageRow:
    """Returns a group as the contract shows it."""
    return pb.UsageRow(
        group=group.group,
        call_count=group.call_count,
        error_count=group.error_count,
        latency_p50_ms=group.latency_p50_ms,
        latency_p95_ms=group.latency_p95_ms,
        embedding_tokens=group.embedding_tokens,
        input_tokens=group.input_tokens,
        output_tokens=group.output_tokens,
        llm_call_count=group.llm_call_count,
        upstream_cost_usd=group.upstream_cost_usd,
    )
