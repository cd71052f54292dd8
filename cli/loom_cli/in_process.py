"""`loom up` in one process: the engine, every service and the gateway on one event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import loom_assistant.settings
import loom_assistant.wiring
import loom_embedding.settings
import loom_embedding.wiring
import loom_gateway.settings
import loom_gateway.wiring
import loom_insights.settings
import loom_insights.wiring
import loom_llm.settings
import loom_llm.wiring
import loom_memory.settings
import loom_memory.wiring
from loom_cli.console import CommandError
from loom_cli.plan import LEDGER_KEEPER, StartPlan
from loom_common.clickhouse import ClickHouse
from loom_common.local_server import local_calls
from loom_common.settings import LoomSettings

# Source: chosen. The slowest start loads the embedding model, which takes seconds.
START_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Part:
    """One service as a start sees it."""

    name: str
    settings: type[LoomSettings]
    open: Callable[[Any, ClickHouse], AbstractAsyncContextManager[Any]]


# The gateway first: its identity serves the keys that the others verify callers with.
GATEWAY: Final = Part("gateway", loom_gateway.settings.GatewaySettings, loom_gateway.wiring.open_service)
SERVICES: Final = (
    Part("embedding", loom_embedding.settings.EmbeddingSettings, loom_embedding.wiring.open_service),
    Part("llm", loom_llm.settings.LlmSettings, loom_llm.wiring.open_service),
    Part("insights", loom_insights.settings.InsightsSettings, loom_insights.wiring.open_service),
    Part("assistant", loom_assistant.settings.AssistantSettings, loom_assistant.wiring.open_service),
    Part("memory", loom_memory.settings.MemorySettings, loom_memory.wiring.open_service),
)
SETTINGS: Final = tuple(part.settings for part in (GATEWAY, *SERVICES))


def load_settings(plan: StartPlan) -> dict[str, LoomSettings]:
    """Returns the settings of every service.

    Raises:
        SettingsError: A variable cannot be used.
    """
    return {part.name: part.settings.load(plan.variables(part.name)) for part in (GATEWAY, *SERVICES)}


@asynccontextmanager
async def running(settings: Mapping[str, LoomSettings], ch: ClickHouse) -> AsyncIterator[None]:
    """Runs every service for the block, which begins once all of them serve. They call each other without sockets.

    The gateway stops first, so that nothing new comes in while the services drain; the one that keeps the ledger stops
    last, as each of the others tells it of its last calls while it stops.
    """
    others: list[_Running] = []
    gateway = _Running(GATEWAY, settings[GATEWAY.name], ch)
    with local_calls():
        try:
            await gateway.start()
            others = [_Running(part, settings[part.name], ch) for part in SERVICES]
            await _start_all(others)
            yield
        finally:
            try:
                await gateway.stop()
            finally:
                await _stop_all(others)


async def _start_all(services: Sequence["_Running"]) -> None:
    """Starts all; the first that cannot cuts the others short, which may wait for it, and its failure is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for service in services:
                group.create_task(service.start())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def _stop_all(services: Sequence["_Running"]) -> None:
    try:
        await _all(service.stop() for service in services if service.name != LEDGER_KEEPER)
    finally:
        await _all(service.stop() for service in services if service.name == LEDGER_KEEPER)


async def _all(work: Any) -> None:  # Any: an iterable of awaitables of any result
    """Waits for all, then raises the first failure; none is left running behind it."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result


class _Running:
    """One service in a task of its own, so that several start at once and each is closed where it was opened."""

    def __init__(self, part: Part, settings: LoomSettings, ch: ClickHouse) -> None:
        self._part, self._settings, self._ch = part, settings, ch
        self._started = asyncio.Event()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """Name of the service."""
        return self._part.name

    async def start(self) -> None:
        """Returns once the service serves; raises what kept it from starting."""
        self._task = asyncio.create_task(self._run(), name=f"service {self._part.name}")
        started = asyncio.create_task(self._started.wait())
        try:
            await asyncio.wait({self._task, started}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Lets the service drain and waits for its end; one that still starts is cut short."""
        self._stop.set()
        if self._task is not None:
            if not self._started.is_set():
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=not self._started.is_set())

    async def _run(self) -> None:
        async with self._part.open(self._settings, self._ch) as server:
            if not await server.wait_ready(START_TIMEOUT_S):
                raise CommandError(f"{self._part.name} was not ready within {START_TIMEOUT_S:g} s; its log says why")
            self._started.set()
            await self._stop.wait()
