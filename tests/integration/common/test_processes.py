"""Several processes on one engine, through the endpoint in a process of its own; some are paused, some are killed."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from support import contender
from support.clickhouse import EndpointProcess, endpoint_process

from loom_common.clickhouse import ClickHouse, ClickHouseSettings, Table, open_clickhouse
from loom_common.errors import BackendUnavailable
from loom_common.leases import Leases
from loom_common.migrations import migrate

pytestmark = pytest.mark.slow

ROWS = Table.of("numbers_kept", number="UInt64", text="String")


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[EndpointProcess]:
    async with endpoint_process(tmp_path / "data") as process:
        yield process


@pytest.fixture
async def store(endpoint: EndpointProcess) -> AsyncIterator[ClickHouse]:
    async with open_clickhouse(endpoint.url, database="loom", settings=ClickHouseSettings()) as ch:
        await migrate(ch, "test", "loom_common")
        await ch.command(contender.MAKE_COUNTER)
        yield ch


class Contender:
    """One child, spoken to line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def heard(self) -> list[str]:
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            return (await self.process.stdout.readline()).decode().split()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@asynccontextmanager
async def _contender(endpoint: EndpointProcess, *arguments: str) -> AsyncIterator[Contender]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "support.contender", endpoint.url, "loom", *arguments,
        cwd=Path(contender.__file__).parents[1], stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Contender(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _counter(store: ClickHouse) -> tuple[int, str]:
    row = (await store.query(contender.READ_COUNTER)).first()
    assert row is not None
    return row[0], row[1]


async def test_each_revision_is_written_by_one_of_several_processes(
    endpoint: EndpointProcess, store: ClickHouse
) -> None:
    children, times = 3, 6
    async with AsyncExitStack() as stack:
        started = [
            await stack.enter_async_context(_contender(endpoint, "count", f"w{index}", str(times), "30", "go"))
            for index in range(children)
        ]
        heard = [await child.heard() for child in started for _ in range(times)]
    assert sorted(int(revision) for _, revision in heard) == list(range(1, children * times + 1))
    assert (await _counter(store))[0] == children * times


async def test_a_writer_paused_past_its_hold_is_told_of_the_conflict_and_its_write_loses(
    endpoint: EndpointProcess, store: ClickHouse
) -> None:
    async with _contender(endpoint, "count", "paused", "1", "0.5", "pause") as paused:
        assert await paused.heard() == ["inside", "0"]
        paused.send(signal.SIGSTOP)
        async with _contender(endpoint, "count", "other", "1", "30", "go") as other:
            assert await other.heard() == ["wrote", "1"]
        paused.send(signal.SIGCONT)
        paused.tell("go")
        assert await paused.heard() == ["conflict"]
    assert await _counter(store) == (1, "other")


async def test_a_writer_that_is_late_while_the_next_one_writes_loses_too(
    endpoint: EndpointProcess, store: ClickHouse
) -> None:
    async with _contender(endpoint, "count", "late", "1", "0.5", "pause") as late:
        assert await late.heard() == ["inside", "0"]
        async with _contender(endpoint, "count", "next", "1", "30", "pause") as next_:
            assert await next_.heard() == ["inside", "0"]  # both have read revision 0
            late.tell("go")
            assert await late.heard() == ["conflict"]
            next_.tell("go")
            assert await next_.heard() == ["wrote", "1"]
    assert await _counter(store) == (1, "next")


async def test_a_killed_writer_holds_the_row_only_for_its_time(endpoint: EndpointProcess, store: ClickHouse) -> None:
    async with _contender(endpoint, "count", "killed", "1", "0.5", "pause") as killed:
        assert await killed.heard() == ["inside", "0"]
        killed.send(signal.SIGKILL)
        async with _contender(endpoint, "count", "other", "1", "30", "go") as other:
            assert await other.heard() == ["wrote", "1"]
    assert await _counter(store) == (1, "other")


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
async def test_the_lease_of_a_stopped_process_goes_to_the_next_with_a_higher_fence(
    endpoint: EndpointProcess, store: ClickHouse, number: signal.Signals
) -> None:
    async with _contender(endpoint, "lead", "2") as holder:
        _, fence = await holder.heard()
        assert int(fence) > 0
        holder.tell("check")
        assert await holder.heard() == ["held"]
        assert await Leases(store, "test").acquire("leader", 30) is None
        holder.send(number)
        async with asyncio.timeout(20):
            while (lease := await Leases(store, "test").acquire("leader", 30)) is None:
                pass
        assert lease.fence > int(fence)
        if number is signal.SIGSTOP:
            holder.send(signal.SIGCONT)
            holder.tell("check")
            assert await holder.heard() == ["lost"]
        await lease.check()


async def test_a_second_opener_of_the_directory_is_told_who_has_it(endpoint: EndpointProcess, tmp_path: Path) -> None:
    code, text = await _refused(tmp_path / "data")
    assert code == 1
    assert str(endpoint.pid) in text
    assert "http://127.0.0.1:" in text
    assert len(text.strip().splitlines()) == 1


async def _refused(directory: Path) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loom_common.clickhouse.endpoint", "--dir", str(directory), "--uds", str(directory / "s"),
        stderr=asyncio.subprocess.PIPE, env={**os.environ, "LOOM_CLICKHOUSE_MIN_FREE_BYTES": "0"},
    )  # fmt: skip
    async with asyncio.timeout(60):
        _, errors = await process.communicate()
    return process.returncode, errors.decode()


async def test_a_socket_is_its_owners_alone_and_needs_no_password(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with endpoint_process(tmp_path / "data", uds=path):
        assert path.stat().st_mode & 0o777 == 0o600
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
            session.post("http://loom/", data="SELECT 41 + 1") as response,
        ):
            assert (response.status, await response.text()) == (200, "42\n")


async def test_acknowledged_rows_survive_kill_9_of_the_engine(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    for round_ in range(3):
        async with (
            endpoint_process(tmp_path / "data") as process,
            open_clickhouse(process.url, database="loom", settings=ClickHouseSettings()) as ch,
        ):
            await ch.command(
                "CREATE TABLE IF NOT EXISTS numbers_kept (number UInt64, text String)"
                " ENGINE = MergeTree ORDER BY number"
            )
            assert await _kept(ch) >= set(acknowledged)
            before = len(acknowledged)
            writers = [
                asyncio.ensure_future(_write(ch, acknowledged, range(start, 10**9, 10)))
                for start in range(round_ * 10**6, round_ * 10**6 + 4)
            ]
            async with asyncio.timeout(60):
                while len(acknowledged) < before + 200:
                    await asyncio.wait(writers, timeout=0.01)
            process.process.kill()
            await asyncio.gather(*writers)
    async with (
        endpoint_process(tmp_path / "data") as process,
        open_clickhouse(process.url, database="loom", settings=ClickHouseSettings()) as ch,
    ):
        assert await _kept(ch) >= set(acknowledged)
        assert len(acknowledged) >= 600


async def _kept(ch: ClickHouse) -> set[int]:
    return {number for (number,) in await ch.query("SELECT number FROM numbers_kept")}


async def _write(ch: ClickHouse, acknowledged: list[int], numbers: range) -> None:
    for number in numbers:
        try:
            await ch.insert(ROWS, [(number, "x" * 100)])
        except BackendUnavailable:
            return
        acknowledged.append(number)
