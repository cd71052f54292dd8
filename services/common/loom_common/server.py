"""A gRPC server built from named parts, and its life: bind, serve once dependencies answer, drain, close."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import grpc.aio
import structlog
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from loom.common.v1 import status_pb2_grpc
from loom_common import headers
from loom_common.auth.directory import Directory
from loom_common.auth.service_credentials import ServiceKeyring
from loom_common.auth.verifier import TokenVerifier
from loom_common.interceptors.access_log import AccessLogInterceptor
from loom_common.interceptors.auth import AuthInterceptor
from loom_common.interceptors.deadline import DeadlineInterceptor
from loom_common.interceptors.errors import ErrorInterceptor
from loom_common.interceptors.ledger import LedgerInterceptor
from loom_common.interceptors.limits import ConcurrencyInterceptor, RateLimitInterceptor
from loom_common.interceptors.metrics import MetricsInterceptor
from loom_common.interceptors.rpc import Chain, Handler
from loom_common.interceptors.trace import TraceInterceptor
from loom_common.interceptors.validation import ValidationInterceptor
from loom_common.ledger import LedgerSink
from loom_common.local_server import LocalServer, local_servers
from loom_common.rates import RateLimiter
from loom_common.reflection import add_reflection_to_server
from loom_common.settings import CommonSettings
from loom_common.status import Problem, StatusReport, StatusServicer, StatusSource, bounded_report

STATUS_SERVICE: Final = "loom.common.v1.StatusService"
HEALTH_SERVICE: Final = "grpc.health.v1.Health"
CHANNELZ_SERVICE: Final = "grpc.channelz.v1.Channelz"

# A dependency that is gone turns health red within ten seconds; a start is noticed at once.
_WATCH_READY_S: Final = 3.0
_WATCH_STARTING_S: Final = 0.1

_MAX_PORT: Final = 65_535

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING

_log = structlog.get_logger(__name__)


class Service(NamedTuple):
    """One gRPC service of a server."""

    add: Callable[[Any, grpc.aio.Server], None]
    """The generated `add_<Service>Servicer_to_server`."""
    servicer: object
    """What answers its RPCs."""
    full_name: str
    """Such as `loom.memory.v1.MemoryService`."""


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """What a server serves.

    Attributes:
        name: Name of the service: `memory`, `gateway`, ...
        listen: Address to bind; port 0 takes a free one.
        services: What it serves beside health, reflection, channelz and its status.
        status: Knows how the service fares.
    """

    name: str
    listen: str
    services: Sequence[Service]
    status: StatusSource


@dataclass(frozen=True, slots=True)
class ServerDeps:
    """What a server needs to know its callers.

    Attributes:
        verifier: Verifies callers' tokens.
        keyring: Verifies other services' credentials.
        directory: Knows namespaces.
        ledger: Takes the rows of direct calls; None where another records them.
        identity_ready: Whether identity is heard, by which callers are verified; while not, the server is not ready.
    """

    verifier: TokenVerifier
    keyring: ServiceKeyring
    directory: Directory
    ledger: LedgerSink | None = None
    identity_ready: Callable[[], bool] = lambda: True


class ListenError(Exception):
    """The address cannot be bound. The text is one line for the operator."""


class RunningServer:
    """A server that is bound and answers."""

    def __init__(self, name: str, address: str, port: int) -> None:
        self.name = name
        self.address = address
        self.port = port
        self._ready = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether its health says SERVING."""
        return self._ready.is_set()

    async def wait_ready(self, timeout_s: float) -> bool:
        """Waits until it is ready, at most `timeout_s`; returns whether it is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        return self.ready

    def set_ready(self, ready: bool) -> None:
        """Notes what health says now."""
        if ready:
            self._ready.set()
        else:
            self._ready.clear()


@asynccontextmanager
async def serving(spec: ServiceSpec, settings: CommonSettings, deps: ServerDeps) -> AsyncIterator[RunningServer]:
    """Serves until it is left: then health goes off, running calls end, and the port is freed.

    Yields as soon as the port is bound. Health says SERVING once the service's own status does.

    Raises:
        ListenError: The address is taken or not ours.
    """
    health = health_aio.HealthServicer()
    status = _WholeStatus(spec.status, deps.identity_ready)
    chain, servers = _interceptors(spec, settings, deps), local_servers()
    server = _build_server(spec, settings, chain, health, status)
    names = ["", *(service.full_name for service in spec.services)]
    for name in names:
        await health.set(name, _NOT_SERVING)
    running = await _bind(server, spec)
    await server.start()
    local = _local_server(spec, settings, chain, status)
    _log.info("serving", service=spec.name, address=running.address)
    watch = asyncio.create_task(_watch_status(status, health, names, running), name=f"status-{spec.name}")
    try:
        with servers.serving(running.address, local) if servers is not None else contextlib.nullcontext():
            try:
                yield running
            finally:
                watch.cancel()
                await asyncio.wait([watch])
                running.set_ready(False)
                # Balancers look away first; then running calls end.
                await health.enter_graceful_shutdown()
    finally:
        await asyncio.gather(server.stop(settings.drain_s), local.drain(settings.drain_s))
        _log.info("stopped", service=spec.name)


def _build_server(
    spec: ServiceSpec,
    settings: CommonSettings,
    chain: Chain,
    health: health_aio.HealthServicer,
    status: StatusSource,
) -> grpc.aio.Server:
    server = grpc.aio.server(interceptors=[chain], options=_options(settings.grpc_max_message_bytes))
    for service in spec.services:
        service.add(service.servicer, server)
    status_pb2_grpc.add_StatusServiceServicer_to_server(StatusServicer(spec.name, status), server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    channelz.add_channelz_servicer(server)
    names = [service.full_name for service in spec.services]
    add_reflection_to_server(server, [*names, STATUS_SERVICE, HEALTH_SERVICE, CHANNELZ_SERVICE])
    return server


def _local_server(spec: ServiceSpec, settings: CommonSettings, chain: Chain, status: StatusSource) -> LocalServer:
    """Returns the same services behind the same interceptors, for calls that come from within the process."""
    local = LocalServer(settings.grpc_max_message_bytes)
    handlers: Any = _Handlers(local, chain)
    for service in spec.services:
        service.add(service.servicer, handlers)
    status_pb2_grpc.add_StatusServiceServicer_to_server(StatusServicer(spec.name, status), handlers)
    return local


class _Handlers:
    """Takes what generated code adds to a server of grpc's."""

    def __init__(self, local: LocalServer, chain: Chain) -> None:
        self._local, self._chain = local, chain

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Passes over what is added by method below."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        for name, handler in handlers.items():
            method = f"/{service}/{name}"
            self._local.add(method, self._chain.wrapped(method, handler))


def _interceptors(spec: ServiceSpec, settings: CommonSettings, deps: ServerDeps) -> Chain:
    """Returns what stands around each call."""
    rates_per_s = {
        "default": settings.rate_limit_default_per_s,
        "write": settings.rate_limit_write_per_s,
        "search": settings.rate_limit_search_per_s,
        "insights": settings.rate_limit_insights_per_s,
        "identity": settings.rate_limit_identity_per_s,
    }
    return Chain(
        [
            TraceInterceptor(),
            MetricsInterceptor(spec.name),
            AccessLogInterceptor(),
            *([LedgerInterceptor(deps.ledger, spec.name)] if deps.ledger is not None else []),
            ErrorInterceptor(),
            ConcurrencyInterceptor(settings.grpc_max_concurrent_calls),
            AuthInterceptor(deps.verifier, deps.keyring, deps.directory),
            RateLimitInterceptor(RateLimiter(rates_per_s), settings.rate_limit_org_times),
            ValidationInterceptor(),
            DeadlineInterceptor(settings.grpc_max_call_s),
        ]
    )


def _options(max_message_bytes: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_metadata_size", headers.MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", 2 * headers.MAX_METADATA_BYTES),
        # Two servers on one port would share its calls without a word.
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ]


async def _bind(server: grpc.aio.Server, spec: ServiceSpec) -> RunningServer:
    variable = f"LOOM_{spec.name.upper()}_LISTEN"
    if not spec.listen.startswith("unix:"):
        await _require_free(spec.listen, variable)
    try:
        port = server.add_insecure_port(spec.listen)
    except RuntimeError:
        port = None
    if port is None or (port == 0 and not spec.listen.startswith("unix:")):
        raise ListenError(f"{spec.listen} cannot be bound. Set {variable} to another address.")
    if spec.listen.startswith("unix:"):
        return RunningServer(spec.name, spec.listen, 0)
    host = spec.listen.rpartition(":")[0]
    reachable = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - replaced
    return RunningServer(spec.name, f"{reachable}:{port}", port)


async def _require_free(listen: str, variable: str) -> None:
    """Refuses an address that is taken; gRPC itself would write a page to standard error first."""
    host, _, port = listen.rpartition(":")
    try:
        if int(port) > _MAX_PORT:
            raise ValueError
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else "no address"
        raise ListenError(f"{listen} cannot be bound: {text}. Set {variable} to another address.") from None


class _WholeStatus:
    """The service's own status, and whether its callers can be verified."""

    def __init__(self, source: StatusSource, identity_ready: Callable[[], bool]) -> None:
        self._source = source
        self._identity_ready = identity_ready

    async def report(self) -> StatusReport:
        report = await bounded_report(self._source)
        if self._identity_ready():
            return report
        problem = Problem(
            "identity_unread",
            "Identity cannot be reached; callers are refused once it was not for 30 seconds. Check LOOM_IDENTITY_ADDR.",
            "error",
        )
        return StatusReport(ready=False, problems=(problem, *report.problems), facts=report.facts)


async def _watch_status(
    status: StatusSource, health: health_aio.HealthServicer, names: Sequence[str], running: RunningServer
) -> None:
    while True:
        report = await bounded_report(status)
        if report.ready != running.ready:
            running.set_ready(report.ready)
            _log.info("ready" if report.ready else "not_ready", service=running.name)
            for name in names:
                await health.set(name, _SERVING if report.ready else _NOT_SERVING)
        await asyncio.sleep(_WATCH_READY_S if report.ready else _WATCH_STARTING_S)
