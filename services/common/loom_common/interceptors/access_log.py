"""One line in the log for each RPC."""

import contextlib
from collections.abc import AsyncIterator

import structlog

from loom_common.interceptors.rpc import OK_OUTCOME, Rpc, RpcInterceptor

_log = structlog.get_logger("loom.access")


class AccessLogInterceptor(RpcInterceptor):
    """Logs who called what, how it ended and how long it took; never what a message holds."""

    @contextlib.asynccontextmanager
    async def around(self, rpc: Rpc) -> AsyncIterator[None]:
        """See `RpcInterceptor.around`."""
        try:
            yield
        finally:
            call = rpc.call
            facts = {
                "op": call.op,
                "outcome": rpc.outcome,
                "latency_ms": round(rpc.elapsed_ms(), 2),
                "request_id": call.request_id,
                "peer_service": call.peer_service,
                "subject": call.claims.sub if call.claims else None,
                "org": call.scope.org if call.scope else None,
                "namespace": call.scope.namespace if call.scope else None,
            }
            present = {key: value for key, value in facts.items() if value is not None}
            # A peer's calls are logged by the peer's own caller too; one line per request is enough at the usual level.
            quiet = rpc.outcome == OK_OUTCOME and call.peer_service is not None
            (_log.debug if quiet else _log.info)("rpc", **present)
