"""HTTP answers: values and errors as JSON, in one shape."""

from collections.abc import Mapping

from pydantic import JsonValue
from starlette.responses import Response

from loom_common.errors import LoomError, MalformedRequest, to_http
from loom_gateway.contract.answers import encode

JSON = "application/json"


def json_response(value: JsonValue, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Returns a JSON answer that no cache keeps."""
    return Response(
        encode(value), status_code=status, media_type=JSON, headers={"Cache-Control": "no-store", **(headers or {})}
    )


def error_response(error: LoomError, request_id: str, *, headers: Mapping[str, str] | None = None) -> Response:
    """Returns an error in the shape that every transport's callers know."""
    status, found, body = to_http(error, error.request_id or request_id)
    return json_response(body, status=status, headers={**found, **(headers or {})})


def method_refused(request_id: str, allowed: str) -> Response:
    """Returns the answer to a method that a route does not take."""
    error = MalformedRequest(f"This address takes {allowed} only.", detail={"allowed": allowed})
    _, _, body = to_http(error, request_id)
    shown = body["error"]
    assert isinstance(shown, dict), "the shape of to_http"
    return json_response({"error": {**shown, "status": 405}}, status=405, headers={"Allow": allowed})
