"""Services in one process: how they start and stop together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loom_cli.in_process import Part, _Running, _start_all, _stop_all
from loom_cli.plan import LEDGER_KEEPER
from loom_common.settings import LoomSettings, SettingsError


async def test_a_service_that_still_starts_is_cut_short_and_closed() -> None:
    opened, closed = asyncio.Event(), asyncio.Event()

    class NeverReady:
        async def wait_ready(self, timeout_s: float) -> bool:
            opened.set()
            await asyncio.sleep(timeout_s)
            return False

    @asynccontextmanager
    async def open_service(settings: Any, ch: Any) -> AsyncIterator[NeverReady]:  # Any: neither is used
        try:
            yield NeverReady()
        finally:
            closed.set()

    nothing: Any = None
    service = _Running(Part("slow", LoomSettings, open_service), nothing, nothing)
    start = asyncio.create_task(service.start())
    async with asyncio.timeout(5):
        await opened.wait()
        start.cancel()
        await service.stop()
    assert closed.is_set()


async def test_a_service_that_cannot_start_is_told_of_while_others_still_wait() -> None:
    @asynccontextmanager
    async def waiting(settings: Any, ch: Any) -> AsyncIterator[Any]:  # Any: none is used
        await asyncio.Event().wait()
        yield

    @asynccontextmanager
    async def refused(settings: Any, ch: Any) -> AsyncIterator[Any]:  # Any: none is used
        raise SettingsError("LOOM_EMBEDDING_MODEL names no model.")
        yield

    nothing: Any = None
    services = [_Running(Part(open_.__name__, LoomSettings, open_), nothing, nothing) for open_ in (waiting, refused)]
    async with asyncio.timeout(5):
        with pytest.raises(SettingsError):
            await _start_all(services)
        await services[0].stop()


async def test_the_keeper_of_the_ledger_stops_when_all_others_have_even_where_one_fails() -> None:
    stopped: list[str] = []

    class Ready:
        async def wait_ready(self, timeout_s: float) -> bool:
            return True

    def part(name: str) -> Part:
        @asynccontextmanager
        async def open_service(settings: Any, ch: Any) -> AsyncIterator[Ready]:  # Any: neither is used
            yield Ready()
            await asyncio.sleep(0)
            stopped.append(name)
            if name == "memory":
                raise OSError("it broke while it stopped")

        return Part(name, LoomSettings, open_service)

    nothing: Any = None
    services = [_Running(part(name), nothing, nothing) for name in (LEDGER_KEEPER, "llm", "memory")]
    async with asyncio.timeout(5):
        await _start_all(services)
        with pytest.raises(OSError, match="it broke"):
            await _stop_all(services)
    assert stopped == ["llm", "memory", LEDGER_KEEPER]
