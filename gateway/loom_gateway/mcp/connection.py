"""What is known of a request to `/mcp` besides its message."""

from dataclasses import dataclass
from typing import Final

from loom_common.auth.claims import Claims
from loom_common.errors import LoomError
from loom_gateway.calls.caller import Caller
from loom_gateway.mcp.sessions import Session
from loom_gateway.mcp.toolsets import Toolset

CONNECTION_STATE: Final = "mcp"
"""Where a request's state holds it."""


@dataclass(frozen=True, slots=True)
class Connection:
    """What the endpoint knows of the request that carries a message."""

    caller: Caller
    claims: Claims
    """What the caller's token says; the services verify it again."""
    toolset: Toolset
    session: Session
    """What this replica remembers of the client's session; of nothing where it sends no session identifier."""
    fault: LoomError | None = None
    """What is wrong with the arguments that the endpoint left out."""
