"""`loom up --processes`: the layout of a deployment on one machine, each service a process of its own.

The engine lives in a process of its own behind the HTTP endpoint, because one directory serves one process. Children
are exec'ed, never forked: a fork of a process that holds the engine hangs.
"""

import asyncio
import secrets
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import grpc.aio
from grpc_health.v1 import health_pb2

from loom_cli import ports
from loom_cli.console import ERR, CommandError
from loom_cli.plan import LEDGER_KEEPER, StartPlan, inherited
from loom_common.settings import Service

# Source: chosen. The slowest start loads the embedding model, which takes seconds.
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 20.0
_HEALTH_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.05
# Source: chosen. A service that keeps ending is broken; starting it for ever hides that.
_MAX_RESTARTS: Final = 5
_RESTART_WINDOW_S: Final = 60.0
ENGINE: Final = "engine"
GATEWAY: Final = "gateway"
_MODULES: Final = (GATEWAY, "embedding", "llm", "insights", "assistant", "memory")


class Child:
    """One process, started again when it ends by itself."""

    def __init__(self, name: str, arguments: list[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._arguments = arguments
        self._environment = dict(environment)
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._starts: deque[float] = deque(maxlen=_MAX_RESTARTS)

    async def start(self) -> None:
        """Starts the process."""
        self._starts.append(asyncio.get_running_loop().time())
        # A session of its own: Ctrl-C reaches the parent alone, which stops the children in order.
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "loom_cli.child",
            *self._arguments,
            env=self._environment,
            start_new_session=True,
            # Never written to: its end tells the child that this process is gone.
            stdin=asyncio.subprocess.PIPE,
        )

    async def watch(self) -> None:
        """Starts the process again whenever it ends, until `stop`.

        Raises:
            CommandError: It ends again and again.
        """
        while True:
            assert self._process is not None  # started before it is watched
            code = await self._process.wait()
            if self._stopping:
                return
            now = asyncio.get_running_loop().time()
            if len(self._starts) == _MAX_RESTARTS and now - self._starts[0] < _RESTART_WINDOW_S:
                raise CommandError(
                    f"{self.name} ended {_MAX_RESTARTS} times within a minute (last with {code}); its log says why"
                )
            ERR.print(f"{self.name} ended with {code}; starting it again", style="yellow", markup=False)
            await self.start()

    async def stop(self) -> None:
        """Lets the process drain; kills it when it does not end in time."""
        self._stopping = True
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    @property
    def exit_code(self) -> int | None:
        """Code that the process ended with; None while it runs."""
        return None if self._process is None else self._process.returncode


async def serve_processes(plan: StartPlan, ready: Callable[[StartPlan], Awaitable[None]], stop: asyncio.Event) -> None:
    """Runs every part as a process until `stop`; calls `ready` once all of them serve.

    Raises:
        CommandError: One does not start, or keeps ending.
    """
    children: list[Child] = []
    try:
        if plan.clickhouse_url.startswith("chdb:"):
            engine, url, address = _engine(plan.data_dir)
            children.append(engine)
            await engine.start()
            await _answers(engine, address, stop)
            plan = replace(plan, clickhouse_url=url)
        for name in _MODULES:
            child = Child(name, [f"loom_{name}"], {**inherited(name), **plan.variables(name)})
            children.append(child)
            await child.start()
        for child in children:
            if child.name != ENGINE:
                await _serves(child, plan.addresses[_port_owner(child.name)], stop)
        if stop.is_set():
            return
        await ready(plan)
        await _watch(children, stop)
    finally:
        # The gateway first, so that nothing new comes in while the rest drains. The keeper of the ledger behind the
        # others, which tell it of their last calls while they stop, and the engine last.
        ERR.print("stopping ...", style="dim")
        gateway = [child for child in children if child.name == GATEWAY]
        services = [child for child in children if child.name not in (GATEWAY, ENGINE, LEDGER_KEEPER)]
        keeper = [child for child in children if child.name == LEDGER_KEEPER]
        for group in (gateway, services, keeper, children):
            await asyncio.gather(*(child.stop() for child in group))


def _port_owner(name: str) -> str:
    return Service.IDENTITY.value if name == GATEWAY else name


def _engine(data_dir: Path) -> tuple[Child, str, str]:
    port = ports.free_port()
    password = secrets.token_urlsafe(32)
    password_file = data_dir / "keys" / "engine-password"
    password_file.touch(mode=0o600)
    password_file.write_text(password, "utf-8")
    arguments = [
        "loom_common.clickhouse.endpoint",
        "--dir",
        str(data_dir),
        "--port",
        str(port),
        "--password-file",
        str(password_file),
    ]
    address = f"{ports.LOOPBACK}:{port}"
    return Child(ENGINE, arguments, inherited(ENGINE)), f"http://default:{password}@{address}/", address


async def _answers(child: Child, address: str, stop: asyncio.Event) -> None:
    """Waits until something listens at `address`, or a stop was asked for.

    Raises:
        CommandError: The process ended, or nothing listens in time.
    """
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_TIMEOUT_S
    while not stop.is_set():
        if child.exit_code is not None:
            raise CommandError(f"{child.name} ended with {child.exit_code} while it started; its output above says why")
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            if loop.time() > deadline:
                raise CommandError(f"{child.name} did not start within {_START_TIMEOUT_S:g} s") from None
            await asyncio.sleep(_POLL_S)
            continue
        writer.close()
        return


async def _serves(child: Child, address: str, stop: asyncio.Event) -> None:
    """Waits until the service at `address` says that it serves, or a stop was asked for.

    Raises:
        CommandError: The process ended, or does not serve in time.
    """
    await _answers(child, address, stop)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_TIMEOUT_S
    async with grpc.aio.insecure_channel(address) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        while not stop.is_set():
            try:
                answer = await check(health_pb2.HealthCheckRequest(), timeout=_HEALTH_TIMEOUT_S)
            except grpc.RpcError:
                answer = health_pb2.HealthCheckResponse()
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
            if loop.time() > deadline:
                raise CommandError(f"{child.name} was not ready within {_START_TIMEOUT_S:g} s; its log says why")
            await asyncio.sleep(_POLL_S)


async def _watch(children: list[Child], stop: asyncio.Event) -> None:
    stopped = asyncio.create_task(stop.wait())
    watches = [asyncio.create_task(child.watch()) for child in children]
    try:
        done, _ = await asyncio.wait({stopped, *watches}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
    finally:
        for task in (stopped, *watches):
            task.cancel()
