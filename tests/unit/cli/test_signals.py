"""Signals while `loom up` starts, serves and stops."""

import asyncio
import os
import signal

import pytest

from loom_cli.signals import until_signal


def signalled(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_while_serving_sets_the_event_and_lets_it_drain(number: int) -> None:
    started, steps = asyncio.Event(), []

    async def serve(stop: asyncio.Event) -> None:
        started.set()
        signalled(number)
        await stop.wait()
        await asyncio.sleep(0)
        steps.append("drained")

    async with asyncio.timeout(5):
        await until_signal(serve, started)
    assert steps == ["drained"]


async def test_a_signal_while_starting_ends_the_start_and_closes_what_was_opened() -> None:
    steps = []

    async def serve(stop: asyncio.Event) -> None:
        try:
            signalled()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("closed")

    async with asyncio.timeout(5):
        await until_signal(serve, asyncio.Event())
    assert steps == ["closed"]


async def test_a_second_signal_while_stopping_ends_it_at_once() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def serve(stop: asyncio.Event) -> None:
        started.set()
        signalled()
        await stop.wait()
        signalled()
        await ended.wait()

    async with asyncio.timeout(5):
        await until_signal(serve, started, end=ended.set)


async def test_an_error_of_the_start_is_told() -> None:
    async def serve(stop: asyncio.Event) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await until_signal(serve, asyncio.Event())
