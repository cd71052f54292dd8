"""Errors as tools answer them: the one error object, worded so that clients show it to the model."""

import re
from typing import Final

import mcp_types as types
from pydantic import JsonValue

from loom_common.errors import LoomError, to_http

# Some clients take a tool's text with one of these words for a failed sign-in of their own and throw it away.
_TAKEN_FOR_SIGN_IN: Final = re.compile(r"\b401\b|oauth|authenticat\w*|unauthori[sz]ed", re.IGNORECASE)
_RECONNECT: Final = "The token of this connection is no longer accepted; connect again with a new one."


def error_object(error: LoomError, request_id: str) -> dict[str, JsonValue]:
    """Returns the error object that HTTP callers get, in words for a tool's result."""
    _, _, body = to_http(error, error.request_id or request_id)
    found = body["error"]
    assert isinstance(found, dict), "the shape of to_http"
    return {**found, "message": worded(error)}


def tool_error(error: LoomError, request_id: str) -> types.CallToolResult:
    """Returns the result of a tool call that was not answered."""
    told = f"{worded(error)}{_wait(error)}"
    if not _TAKEN_FOR_SIGN_IN.search(error.reason.value):
        told = f"{error.reason.value}: {told}"
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=told)],
        structured_content={"error": error_object(error, request_id)},
        is_error=True,
    )


def worded(error: LoomError) -> str:
    """Returns the error's message without words that clients take for a failed sign-in of their own."""
    if error.row.http == 401:
        return _RECONNECT
    return _TAKEN_FOR_SIGN_IN.sub("sign-in", error.message)


def _wait(error: LoomError) -> str:
    return f" Try again in {error.retry_after_s:g} seconds." if error.retry_after_s is not None else ""
