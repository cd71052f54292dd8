"""Bodies that do not come: slowly, or not at all."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import Request

from loom_common.errors import Cancelled, DeadlineExceeded
from loom_gateway.http.body import read_body
from loom_gateway.oauth.forms import read_form

FORM = [(b"content-type", b"application/x-www-form-urlencoded")]


async def gone() -> dict[str, Any]:
    return {"type": "http.disconnect"}


async def never() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def test_a_body_that_does_not_come_in_time_is_waited_for_no_longer() -> None:
    with pytest.raises(DeadlineExceeded):
        await read_body(never, limit_bytes=1, limit_s=0)


async def in_form(receive: Callable[[], Awaitable[Any]]) -> Any:
    return await read_form(Request({"type": "http", "method": "POST", "headers": FORM}, receive))


async def in_body(receive: Callable[[], Awaitable[Any]]) -> Any:
    return await read_body(receive, limit_bytes=1)


@pytest.mark.parametrize("read", [in_body, in_form])
async def test_a_client_that_goes_away_before_its_body_came_is_no_fault_of_ours(read: Any) -> None:
    with pytest.raises(Cancelled):
        await read(gone)
