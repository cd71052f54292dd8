"""A process that contends for a row or a lease; started by the multi-process tests, told what to do on stdin.

Says on stdout what happened, one line per event. `pause` stops it between reading and writing, until a line comes.
"""

import asyncio
import sys

from loom_common.clickhouse import ClickHouse, ClickHouseSettings, Table, open_clickhouse
from loom_common.conditional_writes import Claims
from loom_common.errors import Conflict
from loom_common.leases import LeaseLost, Leases

COUNTER = Table.of("counter", key="String", revision="UInt32", writer="String", version="UInt64")
MAKE_COUNTER = """
CREATE TABLE counter (key String, revision UInt32, writer String, version UInt64)
ENGINE = ReplacingMergeTree(version) ORDER BY key
"""
READ_COUNTER = "SELECT revision, writer, version FROM counter FINAL WHERE key = 'k' ORDER BY key LIMIT 1"


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def told() -> str:
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


async def increment(ch: ClickHouse, claims: Claims, writer: str, hold_s: float, pause: bool) -> None:
    async with claims.hold("k", hold_s=hold_s, wait_s=60) as hold:
        row = (await ch.query(READ_COUNTER)).first()
        revision, version = (row[0], row[2]) if row else (0, 1000)
        if pause:
            say("inside", revision)
            await told()
        await ch.insert(COUNTER, [("k", revision + 1, writer, hold.version_after(version))])
        await hold.confirm()
    say("wrote", revision + 1)


async def count(ch: ClickHouse, writer: str, times: int, hold_s: float, pause: bool) -> None:
    claims = Claims(ch, "test")
    for _ in range(times):
        try:
            await increment(ch, claims, writer, hold_s, pause)
        except Conflict:
            say("conflict")


async def lead(ch: ClickHouse, ttl_s: float) -> None:
    lease = await Leases(ch, "test").acquire("leader", ttl_s)
    say("fence", lease.fence if lease else 0)
    while lease and await told() == "check":
        try:
            await lease.check()
            say("held")
        except LeaseLost:
            say("lost")


async def main(url: str, database: str, what: str, *arguments: str) -> None:
    async with open_clickhouse(url, database=database, settings=ClickHouseSettings()) as ch:
        match what, arguments:
            case "count", (writer, times, hold_s, pause):
                await count(ch, writer, int(times), float(hold_s), pause == "pause")
            case "lead", (ttl_s,):
                await lead(ch, float(ttl_s))
            case _:
                raise ValueError(what)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
