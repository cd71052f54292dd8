"""One line in the log for each RPC."""

import logging
from typing import Any, Final

import structlog

from loom_common.interceptors.rpc import OK_OUTCOME, Proceed, Rpc, RpcInterceptor

_NAME: Final = "loom.access"

_log = structlog.get_logger(_NAME)
# Asked first: most calls of a service write no line, and need not gather the facts for one.
_level = logging.getLogger(_NAME)


class AccessLogInterceptor(RpcInterceptor):
    """Logs who called what, how it ended and how long it took; never what a message holds."""

    async def around(self, rpc: Rpc, request: Any, proceed: Proceed) -> Any:
        """See `RpcInterceptor.around`."""
        try:
            return await proceed(rpc, request)
        finally:
            # A peer's calls are logged by the peer's own caller too; one line per request is enough at the usual level.
            quiet = rpc.outcome == OK_OUTCOME and rpc.call.peer_service is not None
            level = logging.DEBUG if quiet else logging.INFO
            if _level.isEnabledFor(level):
                _log.log(level, "rpc", **_facts(rpc))


def _facts(rpc: Rpc) -> dict[str, object]:
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
    return {key: value for key, value in facts.items() if value is not None}
