"""Idempotency keys: a call that is sent again with its key gets the first call's answer, for a day.

A process that dies between its call's effect and the answer's row leaves no answer: the call then runs again. Ops
with a key must therefore be harmless to repeat; the key saves clients from the second answer, not from a crash.

One call runs under a key at a time. Where this process has the store to itself its own lock sees to that; otherwise a
short hold does, renewed while the call runs, so that a call whose process was killed can be sent again within seconds.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Final

from google.protobuf.message import Message
from pydantic import JsonValue

from loom_common.call import current
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_common.clock import Clock, MonotonicVersions, SystemClock
from loom_common.conditional_writes import Claims, claim_name
from loom_common.errors import Conflict
from loom_common.local_locks import KeyedLocks

IDEMPOTENCY_KEYS: Final = Table.of(
    "idempotency_keys",
    quorum=True,
    service="LowCardinality(String)",
    org="LowCardinality(String)",
    subject="String",
    op="LowCardinality(String)",
    key="String",
    digest="String",
    response="String",
    created_at="DateTime64(3, 'UTC')",
    version="UInt64",
)

_STORED = """
SELECT digest, response
FROM idempotency_keys FINAL
WHERE service = {service:String} AND org = {org:String} AND subject = {subject:String}
    AND op = {op:String} AND key = {key:String} AND created_at > now64(3) - INTERVAL 1 DAY
ORDER BY created_at DESC, digest
LIMIT 1
"""


# Source: chosen. A renewal is one insert, and a pause of the process must be longer than this to let a repetition run
# beside its first call.
_HOLD_S: Final = 6.0
DEFAULT_WAIT_S: Final = 8.0
"""Longer than the hold of a call whose process died, so that its repetition runs and is not refused."""


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request under its key; `digest` is of its body, so that the same key on another body is noticed."""

    org: str
    subject: str
    op: str
    key: str
    digest: str


def keyed_request(request: Message, *bounds: JsonValue) -> KeyedRequest | None:
    """Returns the running call's request under the key that it named; None where it named none.

    Args:
        request: The call's body.
        bounds: What else decides what the body means, so that a call that differs there is another request.
    """
    call = current()
    if not call.idempotency_key or call.claims is None:
        return None
    namespace = call.scope.namespace if call.scope else ""
    return KeyedRequest(
        org=call.claims.org,
        subject=json.dumps([call.claims.sub, namespace, *bounds]),
        op=call.op,
        key=call.idempotency_key,
        digest=hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest(),
    )


class IdempotencyKeys:
    """The answers of one service's keyed requests."""

    def __init__(self, ch: ClickHouse, service: str, clock: Clock | None = None) -> None:
        self._ch = ch
        self._service = service
        self._clock = clock or SystemClock()
        self._versions = MonotonicVersions(self._clock)
        self._local = KeyedLocks()
        self._claims = None if ch.exclusive else Claims(ch, service)

    async def once(
        self, request: KeyedRequest, call: Callable[[], Awaitable[bytes]], *, wait_s: float = DEFAULT_WAIT_S
    ) -> bytes:
        """Returns the stored answer of `request`, or runs `call` and stores its answer. A call that raises stores none.

        Args:
            request: Who asks what, under which key.
            call: Does the work and returns the answer's bytes.
            wait_s: How long to wait for the same request under way elsewhere.

        Raises:
            Conflict: The key came with another body, or the same request is still under way.
        """
        name = claim_name("idempotency", request.org, request.subject, request.op, request.key)
        async with self._alone(name, wait_s):
            stored = await self._stored(request)
            if stored is not None:
                return stored
            answer = await call()
            await self._ch.insert(IDEMPOTENCY_KEYS, [self._row(request, answer)])
            return answer

    @asynccontextmanager
    async def _alone(self, name: str, wait_s: float) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self._claims is not None:
                await stack.enter_async_context(self._claims.hold(name, hold_s=_HOLD_S, wait_s=wait_s, renewed=True))
            else:
                try:
                    await stack.enter_async_context(self._local.one(name, wait_s=wait_s))
                except TimeoutError:
                    raise Conflict("The same request is still under way; ask again later.") from None
            yield

    async def _stored(self, request: KeyedRequest) -> bytes | None:
        key = asdict(request)
        digest = key.pop("digest")
        rows = await self._ch.query(_STORED, {**key, "service": self._service}, settings=own_write_reads(self._ch))
        row = rows.first()
        if row is None:
            return None
        if row[0] != digest:
            raise Conflict("The idempotency key was used with another request.", detail={"reason": "other_body"})
        return b64decode(row[1])

    def _row(self, request: KeyedRequest, answer: bytes) -> tuple[object, ...]:
        # Base64: the driver reads String columns as text, and an answer is bytes.
        return (
            self._service,
            request.org,
            request.subject,
            request.op,
            request.key,
            request.digest,
            b64encode(answer).decode(),
            self._clock.now(),
            self._versions.next(),
        )
