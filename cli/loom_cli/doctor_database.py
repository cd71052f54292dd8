"""`loom doctor`: the database, its migrations and its clock."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

from loom_cli.doctor_findings import Finding, ok, problem, warning
from loom_cli.doctor_running import CLOCKS, Target
from loom_cli.doctor_settings import Examined
from loom_common.clickhouse import ClickHouse, StorageStartError, embedded_directory, open_clickhouse
from loom_common.clickhouse.server_facts import server_facts
from loom_common.errors import LoomError
from loom_common.logging import configure_logging
from loom_common.migrations import MigrationState, migration_state

CLICKHOUSE: Final = "clickhouse"
MIGRATIONS: Final = "migrations"
_OWNERS: Final = {
    "common": "loom_common",
    "gateway": "loom_gateway",
    "embedding": "loom_embedding",
    "llm": "loom_llm",
    "memory": "loom_memory",
    "insights": "loom_insights",
}
_CLOCK_WARNING_S: Final = 2.0
_CLOCK_PROBLEM_S: Final = 30.0
_TIMEOUT_S: Final = 60.0


def examine(settings: Examined, target: Target) -> Iterator[Finding]:
    """Yields how the database fares.

    The engine of a data directory is open in one process: where a Loom runs, it was asked for its health; where none
    does, the engine is opened here, if a start has made it.
    """
    directory = embedded_directory(settings.clickhouse_url)
    if directory is not None and target.here:
        yield ok(CLICKHOUSE, "the engine is open in the running Loom, which was asked how it fares")
        yield ok(MIGRATIONS, "applied when it started")
        return
    if directory is not None and not os.path.isdir(directory / "clickhouse"):
        yield ok(CLICKHOUSE, "the engine's directory is not there yet; the first start makes it")
        return
    configure_logging("error", "console")
    try:
        yield from asyncio.run(asyncio.wait_for(_opened(settings), _TIMEOUT_S))
    except (StorageStartError, LoomError) as error:
        yield problem(CLICKHOUSE, str(error), "Check LOOM_CLICKHOUSE_URL, and whether the server or another Loom runs.")
    except TimeoutError:
        yield problem(CLICKHOUSE, f"the database did not answer within {_TIMEOUT_S:g} s", "See its own log.")


async def _opened(settings: Examined) -> list[Finding]:
    assert settings.store is not None, "read with the directory"
    async with open_clickhouse(
        settings.clickhouse_url, database=settings.store.database, settings=settings.store
    ) as ch:
        return [finding async for finding in _database(ch)]


async def _database(ch: ClickHouse) -> AsyncIterator[Finding]:
    before_s = time.time()
    facts = await server_facts(ch)
    after_s = time.time()
    yield ok(CLICKHOUSE, f"ClickHouse {facts.version} answers in {(after_s - before_s) * 1000:.0f} ms")
    yield _clock(max(0.0, before_s - facts.now_s, facts.now_s - after_s))
    for service, package in _OWNERS.items():
        found = _migrations(service, await migration_state(ch, service, package))
        if found is not None:
            yield found
    yield ok(MIGRATIONS, "looked at those of every service")


def _clock(apart_s: float) -> Finding:
    if apart_s < _CLOCK_WARNING_S:
        return ok(CLOCKS, "this machine and the database agree")
    make = problem if apart_s > _CLOCK_PROBLEM_S else warning
    return make(
        CLOCKS,
        f"this machine and the database are {apart_s:.0f} s apart",
        "Let both follow a time server: leases and expiry compare the two.",
    )


def _migrations(service: str, state: MigrationState) -> Finding | None:
    if state.foreign:
        numbers = ", ".join(map(str, state.foreign))
        return warning(
            MIGRATIONS,
            f"{service}: a newer build applied {numbers}",
            "Every migration works beside the build before it; bring this one up to date.",
        )
    if state.pending:
        numbers = ", ".join(map(str, state.pending))
        return warning(MIGRATIONS, f"{service}: {numbers} to be applied", "The next start of the service applies them.")
    return None
