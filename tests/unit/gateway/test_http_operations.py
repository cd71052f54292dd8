"""Calls of operations, one layer below the server."""

import asyncio
import time
from collections.abc import Mapping

from google.protobuf.message import Message
from starlette.types import Message as Event

from loom_common.auth.claims import Claims, NamespaceGrant, Role
from loom_common.auth.tokens import SigningKey, sign_token
from loom_common.auth.verifier import LocalIdentity, TokenVerifier
from loom_common.call import Call
from loom_common.clock import SystemClock
from loom_common.ledger import FakeLedgerSink
from loom_common.ops import OpSpec
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.http.edge import REQUEST_ID_STATE
from loom_gateway.http.operations import OperationRoutes


class SlowBackends:
    """Never answers, and tells whether it was waited for to the end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def invoke(self, spec: OpSpec, request: Message, call: Call, headers: Mapping[str, str]) -> Message:
        self.begun.set()
        try:
            return await asyncio.Future()
        finally:
            self.ended.set()


async def test_a_client_that_goes_away_ends_the_work_and_leaves_one_cancelled_row() -> None:
    key = SigningKey.generate()
    identity, backends, ledger = LocalIdentity(key), SlowBackends(), FakeLedgerSink()
    dispatcher = Dispatcher(TokenVerifier(identity, identity, SystemClock()), backends, ledger, deadline_s=60)
    routes = OperationRoutes(dispatcher, Catalogue(), max_body_bytes=1024)
    now = time.time()
    token = sign_token(
        Claims("sa:bot", "acme", (NamespaceGrant("team-a", Role.WRITER),), jti="j", iat=now, exp=now + 60), key
    )
    headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "method": "POST",
        "headers": headers,
        "path_params": {"op": "memory.get"},
        "state": {REQUEST_ID_STATE: "req-1"},
    }
    events: list[Event] = [{"type": "http.request", "body": b'{"key": "k"}', "more_body": False}]

    async def receive() -> Event:
        if events:
            return events.pop()
        await backends.begun.wait()
        return {"type": "http.disconnect"}

    async def send(_event: Event) -> None:
        """Takes what nobody reads any more."""

    async with asyncio.timeout(5):
        await routes(scope, receive, send)
    assert backends.ended.is_set()
    assert [(entry.row.op, entry.row.status) for entry in ledger.entries] == [("memory.get", "CANCELLED")]
