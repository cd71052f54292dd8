"""What a kind of resources can do: list what a namespace holds of it, and read one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import mcp_types as types

from loom_gateway.mcp.calling import Context, OpCaller
from loom_gateway.mcp.resource_uris import ResourceUri

_SHOWN_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """Some resources of one namespace."""

    resources: Sequence[types.Resource]
    next_page_token: str
    """Empty on the last page."""


class ResourceKind(Protocol):
    """One kind of things that are resources: memories, and whatever else a namespace comes to hold."""

    @property
    def template(self) -> types.ResourceTemplate:
        """What its addresses look like; the part after the scheme is the kind's name."""
        ...

    async def page(self, caller: OpCaller, context: Context, namespace: str, page_token: str) -> ResourcePage:
        """Returns a page of what a namespace holds of it.

        Raises:
            MCPError: The caller may not read it, or it cannot be read.
        """
        ...

    async def read(self, caller: OpCaller, context: Context, uri: ResourceUri) -> types.TextResourceContents | None:
        """Returns one of them, or None where there is none of that address.

        Raises:
            MCPError: The caller may not read it, or it cannot be read.
        """
        ...


def gist(text: str) -> str:
    """Returns the beginning of a text on one line, to describe a resource with."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]}..."
