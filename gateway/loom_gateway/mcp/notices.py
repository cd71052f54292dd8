"""Log messages to the client: one line on each call, at the level that the client asked for."""

from typing import Any, Final, get_args

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request

from loom_gateway.mcp.sessions import Session

LEVELS: Final[tuple[types.LoggingLevel, ...]] = get_args(types.LoggingLevel)
"""Levels, the least severe first."""

_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
_LOGGER: Final = "loom"


async def tell(
    context: ServerRequestContext[Any, Request],  # Any: the protocol's lifespan state, which is not used
    session: Session,
    op: str,
    outcome: str,
    elapsed_s: float,
) -> None:
    """Tells the client how a call ended, where it wants to know; rides on the call's own answer.

    Revisions with a handshake set the level for a session, later ones on each request.
    """
    level: types.LoggingLevel = "debug" if outcome == "ok" else "warning"
    wanted = session.log_level if context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS else _on_request(context)
    if wanted not in LEVELS or LEVELS.index(level) < LEVELS.index(wanted):
        return
    request_id = context.request_id
    params = types.LoggingMessageNotificationParams(
        level=level,
        logger=_LOGGER,
        data={"op": op, "outcome": outcome, "latency_ms": round(elapsed_s * 1000, 1)},
    )
    await context.session.send_notification(
        types.LoggingMessageNotification(params=params), related_request_id=request_id
    )


def _on_request(context: ServerRequestContext[Any, Request]) -> object:  # Any: as above
    meta = (context.params or {}).get("_meta")
    return meta.get(_LOG_LEVEL) if isinstance(meta, dict) else None
