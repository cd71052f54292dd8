"""Records calls that came past the gateway."""

import contextlib
from collections.abc import AsyncIterator

from loom_common.interceptors.rpc import Rpc, RpcInterceptor
from loom_common.ledger import LedgerSink, ledger_entry


class LedgerInterceptor(RpcInterceptor):
    """Hands the row of each direct call to the ledger; a call that a service makes is recorded where it came in.

    Stands outside of errors, so that refused calls are recorded too.
    """

    def __init__(self, sink: LedgerSink, recorder: str) -> None:
        self._sink = sink
        self._recorder = recorder

    @contextlib.asynccontextmanager
    async def around(self, rpc: Rpc) -> AsyncIterator[None]:
        """See `RpcInterceptor.around`."""
        try:
            yield
        finally:
            if rpc.op is not None and rpc.call.peer_service is None:
                entry = ledger_entry(
                    rpc.op,
                    rpc.call,
                    rpc.request,
                    rpc.response,
                    recorder=self._recorder,
                    started_at=rpc.started_at,
                    latency_ms=rpc.elapsed_ms(),
                    outcome=rpc.outcome,
                    refused=not rpc.handled,
                )
                self._sink.record(entry)
