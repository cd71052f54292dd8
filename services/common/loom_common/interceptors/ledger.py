"""Records calls that came past the gateway."""

import asyncio
from typing import Any

from loom_common.interceptors.rpc import Proceed, Rpc, RpcInterceptor
from loom_common.ledger import LedgerEntry, LedgerSink, ledger_entry
from loom_common.ops import OpSpec
from loom_common.orphans import orphan_entry


class LedgerInterceptor(RpcInterceptor):
    """Hands the row of each direct call to the ledger; a call that a service makes is recorded where it came in.

    Where that service heard no answer it heard of no usage either: what was spent until then becomes a row of its own.

    Stands outside of errors, so that refused calls are recorded too.
    """

    def __init__(self, sink: LedgerSink, recorder: str) -> None:
        self._sink = sink
        self._recorder = recorder

    async def around(self, rpc: Rpc, request: Any, proceed: Proceed) -> Any:
        """See `RpcInterceptor.around`."""
        gone = False
        try:
            return await proceed(rpc, request)
        except asyncio.CancelledError:
            gone = True
            raise
        finally:
            if rpc.op is None:
                pass
            elif rpc.call.peer_service is None:
                self._sink.record(self._direct(rpc, rpc.op))
            elif rpc.call.usage and (gone or _out_of_time(rpc)):
                self._sink.record(self._unheard(rpc, rpc.op))

    def _direct(self, rpc: Rpc, op: OpSpec) -> LedgerEntry:
        return ledger_entry(
            op,
            rpc.call,
            rpc.request,
            rpc.response,
            recorder=self._recorder,
            started_at=rpc.started_at,
            latency_ms=rpc.elapsed_ms(),
            outcome=rpc.outcome,
            refused=not rpc.handled,
        )

    def _unheard(self, rpc: Rpc, op: OpSpec) -> LedgerEntry:
        return orphan_entry(
            op,
            rpc.call,
            recorder=self._recorder,
            started_at=rpc.started_at,
            latency_ms=rpc.elapsed_ms(),
            outcome=rpc.outcome,
        )


def _out_of_time(rpc: Rpc) -> bool:
    """Returns whether the caller's own deadline passed, after which it takes no trailer; it began before ours."""
    left_s = rpc.context.time_remaining()
    return left_s is not None and left_s <= 0
