"""Clients that go away while their request is worked on."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from starlette.types import Receive, Scope

DEPARTURE_STATE: Final = "departure"
"""Where a request's scope holds its `Departure`, under a server that tells of it."""


class Listening(Protocol):
    """Tells of one client's departure."""

    def listen(self, listener: Callable[[], object]) -> None:
        """Has `listener` called once the client is gone, until `end`. The request's body must have been read."""
        ...

    def end(self) -> None:
        """Has nobody called any more."""
        ...


class Departure:
    """Told by the connection itself.

    By the means of ASGI it takes a task beside each request, which nearly always is made to be cancelled.

    Args:
        resume_reading: Has the connection read on: one that does not, as after a long body, misses its end.
    """

    __slots__ = ("_gone", "_listener", "_resume_reading")

    def __init__(self, resume_reading: Callable[[], object]) -> None:
        self._resume_reading = resume_reading
        self._listener: Callable[[], object] | None = None
        self._gone = False

    def listen(self, listener: Callable[[], object]) -> None:
        """See `Listening.listen`."""
        self._listener = listener
        if self._gone:
            listener()
        self._resume_reading()

    def end(self) -> None:
        """See `Listening.end`."""
        self._listener = None

    def tell(self) -> None:
        """Notes that the client is gone."""
        self._gone = True
        if self._listener is not None:
            self._listener()


class _Watch:
    """Told by ASGI, under a server that is not ours."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    def listen(self, listener: Callable[[], object]) -> None:
        self._task = asyncio.create_task(self._watch(listener))

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _watch(self, listener: Callable[[], object]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        listener()


def departure_of(scope: Scope, receive: Receive) -> Listening:
    """Returns what tells that a request's client went away."""
    found: Departure | None = scope["state"].get(DEPARTURE_STATE)
    return found if found is not None else _Watch(receive)
