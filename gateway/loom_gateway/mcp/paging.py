"""Pages of the protocol's lists: a cursor says where the next one begins, and is the client's to send back as it is."""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Final, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError

Item = TypeVar("Item")

PAGE_SIZE: Final = 50
"""Most items of one page. Source: chosen; clients that never ask for a second page still see every tool and prompt."""

# A key of 512 characters of four bytes, encoded twice, fits.
_MAX_CURSOR_CHARS: Final = 8_192


def page(items: Sequence[Item], params: types.PaginatedRequestParams | None) -> tuple[list[Item], str | None]:
    """Returns one page of a list that is whole in memory, and the cursor of the next one.

    Raises:
        MCPError: The cursor is none of this list.
    """
    cursor = params.cursor if params is not None else None
    place = decode(cursor, (int,)) if cursor else (0,)
    begin = place[0]
    if not isinstance(begin, int) or not 0 <= begin <= len(items) or (cursor and not begin):
        raise bad_cursor()
    end = begin + PAGE_SIZE
    return list(items[begin:end]), encode(end) if end < len(items) else None


def encode(*place: str | int) -> str:
    """Returns the cursor of a place."""
    text = json.dumps(place, ensure_ascii=True, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode("ascii")


def decode(cursor: str, kinds: tuple[type, ...]) -> tuple[str | int, ...]:
    """Returns the place that `encode` was given.

    Raises:
        MCPError: The cursor is of another list, or was made up.
    """
    if len(cursor) > _MAX_CURSOR_CHARS or not cursor.isascii():
        raise bad_cursor()
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        held = json.loads(raw)
    except (ValueError, binascii.Error, RecursionError):
        raise bad_cursor() from None
    if not isinstance(held, list) or [type(part) for part in held] != list(kinds):
        raise bad_cursor()
    return tuple(held)


def bad_cursor() -> MCPError:
    """Returns the protocol's error for a cursor that leads nowhere."""
    return MCPError(types.INVALID_PARAMS, "The cursor is not the nextCursor of this list; begin without one.")
