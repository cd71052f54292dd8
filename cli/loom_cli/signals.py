"""What Ctrl-C and SIGTERM do to a running `loom up`: the first stops it in order, the second ends it at once."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Final, NoReturn

from loom_cli.console import ERR

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED: Final = 130


def end_at_once() -> NoReturn:
    """Ends the process as a kill does; children see their parent gone and end too."""
    ERR.print("ended at once; every write that was answered is stored", style="yellow", markup=False)
    os._exit(_INTERRUPTED)


async def until_signal(
    serve: Callable[[asyncio.Event], Coroutine[object, object, None]],
    started: asyncio.Event,
    *,
    end: Callable[[], None] = end_at_once,
) -> None:
    """Runs `serve` with an event that the first signal sets.

    Args:
        serve: Serves until its event is set.
        started: Set once everything serves. A signal before cancels `serve`, which closes what it has opened.
        end: Called by a signal that comes while it stops already.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(serve(stop))

    def on_signal() -> None:
        if stop.is_set():
            end()
            return
        stop.set()
        if not started.is_set():
            task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        await task
    except asyncio.CancelledError:
        # A start that was stopped has done what was asked for.
        if not stop.is_set():
            raise
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
