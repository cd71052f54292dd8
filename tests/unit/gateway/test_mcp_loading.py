"""The protocol is loaded once, when it is needed, and serves in a task of its own."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from loom_gateway.mcp.loading import LazyProtocol


class Served:
    """What stands for the protocol: it notes which task enters and leaves it."""

    def __init__(self) -> None:
        self.entered_by: asyncio.Task[Any] | None = None
        self.left_by: asyncio.Task[Any] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.entered_by = asyncio.current_task()
        yield
        self.left_by = asyncio.current_task()


class Loads:
    """Counts loads and notes their threads."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.served = Served()

    def __call__(self) -> Any:
        self.threads.append(threading.current_thread())
        return self.served


async def test_nothing_is_loaded_while_nobody_asks() -> None:
    loads = Loads()
    async with LazyProtocol(loads).running():
        await asyncio.sleep(0)
    assert loads.threads == []


async def test_all_who_ask_at_once_get_the_same_protocol_loaded_once_off_the_event_loop() -> None:
    loads = Loads()
    lazy = LazyProtocol(loads)
    async with lazy.running():
        found = await asyncio.gather(lazy.get(), lazy.get(), lazy.get())
    assert found == [loads.served] * 3
    assert len(loads.threads) == 1
    assert loads.threads[0] is not threading.main_thread()


async def test_the_task_that_entered_the_protocol_leaves_it_and_is_no_callers() -> None:
    loads = Loads()
    lazy = LazyProtocol(loads)
    async with lazy.running():
        await lazy.get()
    assert loads.served.left_by is loads.served.entered_by is not None
    assert loads.served.left_by is not asyncio.current_task()


async def test_it_is_loaded_by_itself_once_the_start_is_over() -> None:
    loaded = threading.Event()

    def load() -> Any:
        loaded.set()
        return Served()

    async with LazyProtocol(load, idle_s=0).running():
        assert await asyncio.to_thread(loaded.wait, 5)


async def test_a_load_that_fails_fails_each_who_asks() -> None:
    def load() -> Any:
        raise ImportError("broken")

    lazy = LazyProtocol(load)
    async with lazy.running():
        for _ in range(2):
            with pytest.raises(ImportError):
                await lazy.get()
