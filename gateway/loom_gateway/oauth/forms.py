"""Forms and queries as OAuth has them: small, and no parameter twice."""

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from loom_common.errors import PayloadTooLarge
from loom_gateway.http import body
from loom_gateway.oauth.errors import OAuthError

MAX_BODY_BYTES: Final = 32 * 1024
_FORM: Final = "application/x-www-form-urlencoded"


async def read_body(request: Request) -> bytes:
    """Returns a request's body.

    Raises:
        OAuthError: It is too large.
        LoomError: It did not come in time, or its client went away.
    """
    try:
        return await body.read_body(request.receive, limit_bytes=MAX_BODY_BYTES)
    except PayloadTooLarge:
        raise OAuthError("invalid_request", "The body is too large.") from None


async def read_form(request: Request) -> Mapping[str, str]:
    """Returns the fields of a form.

    Raises:
        OAuthError: It is no form, or holds a field twice.
        LoomError: See `read_body`.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise OAuthError("invalid_request", f"The body must be {_FORM}.")
    sent = await read_body(request)
    try:
        fields = parse_qsl(sent.decode("ascii"), keep_blank_values=True, max_num_fields=32, errors="strict")
    except ValueError:
        raise OAuthError("invalid_request", "The body is no form.") from None
    return single_values(fields)


def single_values(fields: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Returns the fields by name.

    Raises:
        OAuthError: One stands twice; of two, something before the gateway may have read the other one.
    """
    found: dict[str, str] = {}
    for name, value in fields:
        if name in found and name != "resource":
            raise OAuthError("invalid_request", f"{name[:32]} stands twice.")
        found.setdefault(name, value)
    return found
