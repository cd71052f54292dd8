"""The HTTP endpoint as other clients of ClickHouse's protocol see it."""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import clickhouse_connect
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from support.clickhouse import EndpointThread, endpoint_process

from loom_common.clickhouse import ClickHouse, ClickHouseSettings, Table, open_clickhouse
from loom_common.errors import BackendUnavailable


@pytest.fixture
async def session(clickhouse_endpoint: EndpointThread) -> AsyncIterator[aiohttp.ClientSession]:
    base = f"http://127.0.0.1:{clickhouse_endpoint.port}/"
    async with aiohttp.ClientSession(base) as session:
        yield session


async def test_without_the_password_nothing_runs(
    session: aiohttp.ClientSession, clickhouse_endpoint: EndpointThread
) -> None:
    password = clickhouse_endpoint.password
    refused: list[dict[str, Any]] = [
        {},
        {"headers": {"Authorization": aiohttp.encode_basic_auth("loom", password + "x")}},
        {"headers": {"X-ClickHouse-Key": ""}},
        {"headers": {"Authorization": "Basic !"}},
        {"params": {"password": "guess"}},
    ]
    for options in refused:
        async with session.post("/", data="SELECT 1", **options) as response:
            assert response.status == 403
            assert response.headers["X-ClickHouse-Exception-Code"] == "516"
    accepted: list[dict[str, Any]] = [
        {"headers": {"Authorization": aiohttp.encode_basic_auth("anyone", password)}},
        {"headers": {"X-ClickHouse-User": "x", "X-ClickHouse-Key": password}},
        {"params": {"password": password}},
    ]
    for options in accepted:
        async with session.post("/", data="SELECT 1", **options) as response:
            assert (response.status, await response.text()) == (200, "1\n")


async def test_ping_needs_no_password(session: aiohttp.ClientSession) -> None:
    async with session.get("/ping") as response:
        assert await response.text() == "Ok.\n"


@pytest.mark.parametrize("compress", ["lz4", "zstd", "gzip", False])
async def test_the_synchronous_driver_works_with_every_compression(
    clickhouse_endpoint: EndpointThread, http_clickhouse: ClickHouse, compress: str | bool
) -> None:
    def work() -> tuple[object, ...]:
        with clickhouse_connect.get_client(
            host="127.0.0.1",
            port=clickhouse_endpoint.port,
            username="loom",
            password=clickhouse_endpoint.password,
            database=http_clickhouse.database,
            compress=compress,
            autogenerate_session_id=False,
        ) as client:
            client.command("CREATE TABLE t (a UInt32, b String) ENGINE = MergeTree ORDER BY a")
            client.insert("t", [[number, f"text {number}"] for number in range(20_000)], column_names=["a", "b"])
            total = client.query("SELECT count(), max(b) FROM t").result_rows[0]
            nothing = client.command("SELECT a FROM t WHERE a > 90000")
            no_rows = client.query("SELECT a, b FROM t LIMIT 0").column_names
            client.raw_insert("t", ["a", "b"], "7,x\n8,y\n", fmt="CSV")
            raw = client.raw_query("SELECT b FROM t WHERE a = 7 ORDER BY b", fmt="TSV")
            return total, nothing, no_rows, raw

    total, nothing, no_rows, raw = await asyncio.to_thread(work)
    assert total == (20_000, "text 9999")
    assert nothing == ""
    assert no_rows == ("a", "b")
    assert raw == b"text 7\nx\n"


async def test_an_error_has_its_code_and_name_for_the_driver(
    clickhouse_endpoint: EndpointThread, http_clickhouse: ClickHouse
) -> None:
    def work() -> None:
        with clickhouse_connect.get_client(
            dsn=clickhouse_endpoint.url(http_clickhouse.database), autogenerate_session_id=False
        ) as client:
            client.query("SELECT * FROM not_there")

    with pytest.raises(DatabaseError) as caught:
        await asyncio.to_thread(work)
    assert (caught.value.code, caught.value.name) == (60, "UNKNOWN_TABLE")


async def test_a_read_whose_client_leaves_is_killed(
    clickhouse_endpoint: EndpointThread, http_clickhouse: ClickHouse
) -> None:
    mark = f"left alone {http_clickhouse.database}"
    reader, writer = await asyncio.open_connection("127.0.0.1", clickhouse_endpoint.port)
    statement = b"SELECT count() FROM numbers(1000000000000) WHERE number % 7 = 3"
    path = f"/?password={clickhouse_endpoint.password}&log_comment={mark.replace(' ', '%20')}"
    writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(statement)}\r\n\r\n".encode() + statement)
    await _until_running(http_clickhouse, mark, 1)
    sock: socket.socket = writer.get_extra_info("socket")
    assert sock is not None
    writer.close()
    await writer.wait_closed()
    assert await reader.read() == b""
    await _until_running(http_clickhouse, mark, 0)


async def _until_running(ch: ClickHouse, mark: str, wanted: int) -> None:
    async with asyncio.timeout(10):
        while True:
            running = await ch.query(
                "SELECT count() FROM system.processes WHERE Settings['log_comment'] = {mark:String}", {"mark": mark}
            )
            if running.scalar() == wanted:
                return


async def test_a_setting_that_does_not_exist_leaves_its_handle_usable(
    session: aiohttp.ClientSession, clickhouse_endpoint: EndpointThread
) -> None:
    headers = {"X-ClickHouse-Key": clickhouse_endpoint.password}
    for _ in range(6):
        async with session.post("/", params={"no_such_setting": "1"}, data="SELECT 1", headers=headers) as response:
            assert response.headers["X-ClickHouse-Exception-Code"] == "115"
        async with session.post("/", data="SELECT 1", headers=headers) as response:
            assert await response.text() == "1\n"


async def test_a_wrong_password_is_an_unavailable_backend(clickhouse_endpoint: EndpointThread) -> None:
    url = f"http://loom:wrong@127.0.0.1:{clickhouse_endpoint.port}/x"
    with pytest.raises(BackendUnavailable):
        async with open_clickhouse(url, database="x", settings=ClickHouseSettings()):
            pytest.fail("it let a wrong password in")


async def test_nobody_listening_is_an_unavailable_backend() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(BackendUnavailable):
        async with open_clickhouse(f"http://127.0.0.1:{port}", database="x", settings=ClickHouseSettings()):
            pytest.fail("nobody was there")


@pytest.mark.slow
async def test_a_removed_data_directory_is_not_ready_and_stores_nothing(tmp_path: Path) -> None:
    async with (
        endpoint_process(tmp_path / "data") as process,
        open_clickhouse(process.url, database="loom", settings=ClickHouseSettings()) as ch,
    ):
        await ch.command("CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a")
        await ch.ping()
        shutil.rmtree(tmp_path / "data" / "clickhouse")
        with pytest.raises(BackendUnavailable):
            await ch.ping()
        with pytest.raises(BackendUnavailable):
            await ch.insert(Table.of("t", a="UInt8"), [(1,)])
