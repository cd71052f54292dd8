"""What is known of a request to `/mcp` besides its message."""

from dataclasses import dataclass
from typing import Final

from loom_common.errors import LoomError
from loom_gateway.calls.caller import Caller
from loom_gateway.mcp.toolsets import Toolset

CONNECTION_STATE: Final = "mcp"
"""Where a request's state holds it."""


@dataclass(frozen=True, slots=True)
class Connection:
    """What the endpoint knows of the request that carries a message."""

    caller: Caller
    toolset: Toolset
    fault: LoomError | None = None
    """What is wrong with the arguments that the endpoint left out."""
