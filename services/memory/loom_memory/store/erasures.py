"""The tables `erasure_receipts` and `erasure_work`: what is erased, how far that is, and what was left at the end."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Row, Table, own_write_reads
from loom_common.clock import Clock, MonotonicVersions
from loom_common.erasure import IN_ORG, NamedMemory

RECEIPTS: Final = Table.of(
    "erasure_receipts",
    org="LowCardinality(String)",
    erasure_id="String",
    namespace="LowCardinality(String)",
    kind="LowCardinality(String)",
    subject_digest="String",
    actor="String",
    state="LowCardinality(String)",
    step="UInt32",
    waiting_for="String",
    services="Array(LowCardinality(String))",
    tables="Array(LowCardinality(String))",
    holds="Array(Bool)",
    remaining="Array(UInt32)",
    started_at="DateTime64(3, 'UTC')",
    rewritten_at="Nullable(DateTime64(3, 'UTC'))",
    finished_at="Nullable(DateTime64(3, 'UTC'))",
    version="UInt64",
)

WORK: Final = Table.of(
    "erasure_work",
    org="LowCardinality(String)",
    erasure_id="String",
    part="UInt8",
    asked="String",
    namespace="LowCardinality(String)",
    memory_key="String",
    user_id="String",
    session_id="String",
)

RUNNING: Final = "running"
FINISHED: Final = "finished"
USER: Final = "user"
REDACT: Final = "redact"

_SELECTED: Final = ", ".join(RECEIPTS.column_names)
_ONE: Final = "org = {org:String} AND erasure_id = {erasure_id:String}"

_RECEIPT: Final = f"SELECT {_SELECTED} FROM erasure_receipts FINAL WHERE {_ONE} ORDER BY erasure_id LIMIT 1"
_SAME: Final = f"""SELECT {_SELECTED} FROM erasure_receipts FINAL
WHERE org = {{org:String}} AND subject_digest = {{digest:String}} AND state = '{RUNNING}'
ORDER BY started_at DESC, erasure_id LIMIT 1"""
_RUNNING: Final = f"""SELECT {_SELECTED} FROM erasure_receipts FINAL WHERE state = '{RUNNING}'
ORDER BY started_at, erasure_id LIMIT {{limit:UInt32}}"""

_ASKED: Final = f"SELECT asked FROM erasure_work WHERE {_ONE} AND part = 0 ORDER BY asked LIMIT 1"
_MEMORIES: Final = f"""SELECT namespace, memory_key, user_id, session_id FROM erasure_work
WHERE {_ONE} AND part = 1
    AND (namespace, memory_key, user_id, session_id) > {{after:Tuple(String, String, String, String)}}
GROUP BY namespace, memory_key, user_id, session_id ORDER BY namespace, memory_key, user_id, session_id
LIMIT {{limit:UInt32}}"""
_COLLECT: Final = f"""INSERT INTO erasure_work
    (org, erasure_id, part, asked, namespace, memory_key, user_id, session_id)
SELECT DISTINCT org, {{erasure_id:String}}, 1, '', namespace, memory_key, user_id, session_id FROM memory_versions
WHERE {IN_ORG} AND user_id = {{user_id:String}} AND version <= {{upto:UInt64}}"""
_TAKES: Final = f"""SELECT count() FROM erasure_receipts FINAL
WHERE org = {{org:String}} AND (namespace = '' OR namespace = {{namespace:String}}) AND kind = '{USER}'
    AND state = '{RUNNING}' AND started_at >= {{since:DateTime64(3, 'UTC')}} AND erasure_id IN (
        SELECT erasure_id FROM erasure_work
        WHERE org = {{org:String}} AND part = 0 AND JSONExtractString(asked, 1) = {{user_id:String}})"""
_FORGET: Final = f"ALTER TABLE erasure_work DELETE WHERE {_ONE}"

# Of a number or a name that is short, the digest tells it to whoever tries them all.
_UNNAME: Final = f"ALTER TABLE erasure_receipts UPDATE subject_digest = '' WHERE {_ONE}"

_GONE: Final = {"mutations_sync": 2}


@dataclass(frozen=True, slots=True)
class Remaining:
    """What one table held when it was counted last."""

    service: str
    table: str
    holds_content: bool
    count: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """One erasure.

    Attributes:
        step: Number of the step that is next.
        waiting_for: What it waits for, for people.
        rewritten_at: When every table had been rewritten last.
    """

    org: str
    erasure_id: str
    namespace: str
    kind: str
    subject_digest: str
    actor: str
    state: str
    step: int
    waiting_for: str
    remaining: tuple[Remaining, ...]
    started_at: datetime
    rewritten_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What an erasure was asked to do; kept until it is finished.

    Attributes:
        user_id: User to erase; empty where memories are redacted.
        text: Text to replace; empty where none is.
        regex: Expression to replace; empty where none is.
        replacement: What stands in its place.
    """

    user_id: str = ""
    text: str = ""
    regex: str = ""
    replacement: str = ""

    @property
    def rewrites(self) -> bool:
        """Whether memories stay, with something replaced in them."""
        return bool(self.text or self.regex)


class ErasureRepository:
    """Owns both tables."""

    def __init__(self, ch: ClickHouse, clock: Clock) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)
        self._numbers = MonotonicVersions(clock)

    async def begin(self, receipt: Receipt, asked: Asked, memories: Sequence[NamedMemory]) -> None:
        """Stores a new erasure; what it works on comes first, so that one that is seen is whole."""
        key = (receipt.org, receipt.erasure_id)
        told = json.dumps([asked.user_id, asked.text, asked.regex, asked.replacement])
        rows: list[Row] = [(*key, 0, told, "", "", "", "")]
        rows += [(*key, 1, "", one.namespace, one.key, one.user_id, one.session_id) for one in memories]
        await self._ch.insert(WORK, rows)
        await self.save(receipt)

    async def save(self, receipt: Receipt) -> None:
        """Stores how far an erasure is."""
        await self._ch.insert(RECEIPTS, [_row(receipt, self._numbers.next())])

    async def get(self, org: str, erasure_id: str) -> Receipt | None:
        """Returns an erasure."""
        row = (await self._ch.query(_RECEIPT, {"org": org, "erasure_id": erasure_id}, settings=self._reads)).first()
        return None if row is None else _receipt(row)

    async def same(self, org: str, digest: str) -> Receipt | None:
        """Returns the erasure of the same subject that runs now."""
        row = (await self._ch.query(_SAME, {"org": org, "digest": digest}, settings=self._reads)).first()
        return None if row is None else _receipt(row)

    async def takes(self, scope: Scope, user_id: str, since: datetime) -> bool:
        """Says whether an erasure that runs takes what was begun for a user at a time."""
        if not user_id:
            return False
        parameters = {"org": scope.org, "namespace": scope.namespace, "user_id": user_id, "since": since}
        return bool((await self._ch.query(_TAKES, parameters, settings=self._reads)).scalar())

    async def running(self, limit: int) -> list[Receipt]:
        """Returns erasures that are not finished, oldest first."""
        rows = await self._ch.query(_RUNNING, {"limit": limit}, settings=self._reads)
        return [_receipt(row) for row in rows]

    async def asked(self, receipt: Receipt) -> Asked | None:
        """Returns what an erasure that runs was asked to do; None where all that is left is to say that it is done."""
        row = (await self._ch.query(_ASKED, _key(receipt), settings=self._reads)).first()
        return None if row is None else Asked(*json.loads(row[0]))

    async def collect(self, receipt: Receipt, user_id: str, upto: int) -> None:
        """Notes every memory that a user has; twice is no harm."""
        parameters = {**_key(receipt), "namespace": receipt.namespace, "user_id": user_id, "upto": upto}
        await self._ch.command(_COLLECT, parameters)

    async def memories(self, receipt: Receipt, after: NamedMemory | None, limit: int) -> list[NamedMemory]:
        """Returns memories that an erasure works on, in order of name, from the first behind `after` on."""
        behind = ("", "", "", "") if after is None else (after.namespace, after.key, after.user_id, after.session_id)
        rows = await self._ch.query(_MEMORIES, {**_key(receipt), "after": behind, "limit": limit}, settings=self._reads)
        return [NamedMemory(*row) for row in rows]

    async def wait_for(self, receipt: Receipt, reason: str) -> None:
        """Notes what an erasure waits for."""
        if receipt.waiting_for != reason:
            await self.save(replace(receipt, waiting_for=reason))

    async def finish(self, receipt: Receipt, now: datetime) -> None:
        """Removes what the erasure worked on, and then says that it is finished."""
        await self._ch.command(_FORGET, _key(receipt), settings=_GONE)
        await self._ch.command(_UNNAME, _key(receipt), settings=_GONE)
        await self.save(replace(receipt, subject_digest="", state=FINISHED, waiting_for="", finished_at=now))


def _key(receipt: Receipt) -> dict[str, object]:
    return {"org": receipt.org, "erasure_id": receipt.erasure_id}


def _row(receipt: Receipt, version: int) -> Row:
    left = receipt.remaining
    return (
        receipt.org, receipt.erasure_id, receipt.namespace, receipt.kind, receipt.subject_digest, receipt.actor,
        receipt.state, receipt.step, receipt.waiting_for, [one.service for one in left], [one.table for one in left],
        [one.holds_content for one in left], [one.count for one in left], receipt.started_at, receipt.rewritten_at,
        receipt.finished_at, version,
    )  # fmt: skip


def _receipt(row: Row) -> Receipt:
    remaining = tuple(
        Remaining(service, table, bool(holds), count)
        for service, table, holds, count in zip(row[9], row[10], row[11], row[12], strict=True)
    )
    org, erasure_id, namespace, kind, digest, actor, state, step, waiting_for = row[:9]
    started_at, rewritten_at, finished_at = row[13:16]
    return Receipt(
        org, erasure_id, namespace, kind, digest, actor, state, step, waiting_for, remaining, started_at,
        rewritten_at, finished_at,
    )  # fmt: skip
