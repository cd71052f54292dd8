"""`loom.insights.v1.LedgerService`."""

import grpc

from loom.insights.v1 import ledger_pb2 as pb
from loom.insights.v1 import ledger_pb2_grpc as pb_grpc
from loom_common.call import Scope
from loom_common.times import parse_time
from loom_insights.app.usage import UsageAccounts
from loom_insights.domain.ledger import LedgerEntry


class LedgerServicer(pb_grpc.LedgerServiceServicer):
    """Takes rows from the services that served the calls."""

    def __init__(self, accounts: UsageAccounts) -> None:
        self._accounts = accounts

    async def RecordLedger(
        self,
        request: pb.RecordLedgerRequest,
        context: grpc.aio.ServicerContext[pb.RecordLedgerRequest, pb.RecordLedgerResponse],
    ) -> pb.RecordLedgerResponse:
        """Translates, delegates, translates back."""
        entries = [entry_from_proto(row) for row in request.rows]
        return pb.RecordLedgerResponse(stored_count=await self._accounts.record(entries))

    async def GetSpendToday(
        self,
        request: pb.GetSpendTodayRequest,
        context: grpc.aio.ServicerContext[pb.GetSpendTodayRequest, pb.GetSpendTodayResponse],
    ) -> pb.GetSpendTodayResponse:
        """Translates, delegates, translates back."""
        spent_usd = await self._accounts.spent_today_usd(Scope(request.org, request.namespace), request.op)
        return pb.GetSpendTodayResponse(spent_usd=spent_usd)


def entry_from_proto(row: pb.LedgerRow) -> LedgerEntry:
    """Returns a row as the domain knows it.

    Raises:
        InvalidArgument: Its time is none.
    """
    return LedgerEntry(
        request_id=row.request_id,
        recorder=row.recorder,
        occurred_at=parse_time(row.occurred_at, "occurred_at"),
        org=row.org,
        namespace=row.namespace,
        op=row.op,
        transport=row.transport,
        subject=row.subject,
        consumer=row.consumer,
        run_id=row.run_id,
        user_id=row.user_id,
        status=row.status,
        refused=row.refused,
        latency_ms=row.latency_ms,
        out_hits=row.out_hits if row.HasField("out_hits") else None,
        found=row.found if row.HasField("found") else None,
        args=dict(row.args),
        out_sql_digest=row.out_sql_digest,
        embedding_tokens=max(0, row.embedding_tokens),
        input_tokens=max(0, row.input_tokens),
        output_tokens=max(0, row.output_tokens),
        cached_tokens=max(0, row.cached_tokens),
        llm_calls=max(0, row.llm_call_count),
        upstream_cost_usd=row.upstream_cost_usd,
        out_llm_cache_saved_usd=row.out_llm_cache_saved_usd,
        model=row.model,
    )
