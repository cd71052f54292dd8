"""Builds the gateway and hands its parts to each other: identity over gRPC first, then HTTP and MCP in front of all."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import grpc.aio

from loom.identity.v1 import directory_pb2_grpc, identity_pb2_grpc
from loom_common.auth.service_credentials import ServiceKey
from loom_common.channel import open_channel
from loom_common.clickhouse import ClickHouse
from loom_common.clock import SystemClock
from loom_common.errors import LoomError
from loom_common.ledger import GrpcLedgerSink
from loom_common.migrations import migrate
from loom_common.peers import load_service_keys
from loom_common.server import RunningServer, ServerDeps, Service, ServiceSpec, serving
from loom_common.settings import Service as ServiceName
from loom_common.status import Problem, StatusReport, version
from loom_common.telemetry import PROMETHEUS_CONTENT_TYPE, prometheus_text
from loom_gateway.calls.backends import GrpcBackends
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.http.app import AppDeps, build_app
from loom_gateway.http.health import HealthReader
from loom_gateway.http.origins import PublicAddress, is_loopback
from loom_gateway.identity.service import Identity, open_identity
from loom_gateway.listener import serving_http
from loom_gateway.settings import GatewaySettings

NAME: Final = "gateway"


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """The gateway while it serves."""

    identity: RunningServer
    """Its gRPC server."""
    http_address: str
    """Where HTTP and MCP are served, such as `127.0.0.1:8080`."""

    @property
    def name(self) -> str:
        """Name of the service."""
        return NAME

    @property
    def address(self) -> str:
        """Address of its gRPC server."""
        return self.identity.address

    @property
    def port(self) -> int:
        """Port of its gRPC server."""
        return self.identity.port

    @property
    def ready(self) -> bool:
        """Whether identity answers, without which the gateway answers nothing."""
        return self.identity.ready

    async def wait_ready(self, timeout_s: float) -> bool:
        """Waits until it is ready, at most `timeout_s`; returns whether it is."""
        return await self.identity.wait_ready(timeout_s)


class IdentityStatus:
    """Identity fares as its store does."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def report(self) -> StatusReport:
        """See `StatusSource.report`."""
        try:
            await self._ch.ping()
        except LoomError as error:
            return StatusReport(ready=False, problems=(Problem("clickhouse_unreachable", error.message, "error"),))
        return StatusReport(ready=True)


@asynccontextmanager
async def open_service(settings: GatewaySettings, ch: ClickHouse) -> AsyncIterator[RunningGateway]:
    """Serves identity over gRPC and everything over HTTP and MCP until it is left.

    Raises:
        SettingsError: A key file cannot be used, or the secret does not open the signing keys.
        ListenError: An address is taken.
    """
    key, keyring = load_service_keys(settings, NAME)
    await migrate(ch, NAME, "loom_gateway")
    async with AsyncExitStack() as stack:
        identity = await stack.enter_async_context(
            open_identity(
                ch,
                settings.jwt_secret,
                settings.jwt_secret_previous,
                SystemClock(),
                policy_refresh_s=settings.policy_refresh_s,
            )
        )
        channels = {
            name.value: await _channel(stack, settings, key, settings.addr_of(name))
            for name in ServiceName
            if name is not ServiceName.IDENTITY
        }
        ledger = await stack.enter_async_context(
            GrpcLedgerSink(channels[ServiceName.INSIGHTS.value], identity.directory)
        )
        deps = ServerDeps(
            verifier=identity.verifier,
            keyring=keyring,
            directory=identity.directory,
            ledger=ledger,
            identity_ready=identity.feed.fresh,
        )
        server = await stack.enter_async_context(serving(_spec(settings, ch, identity), settings, deps))
        # Ends the streams of those who follow revocations, which would otherwise last until the drain is over.
        stack.callback(identity.feed.close)
        # The address that was bound, which only the process itself knows where the port was 0.
        channels[ServiceName.IDENTITY.value] = await _channel(stack, settings, key, server.address)
        dispatcher = Dispatcher(
            identity.verifier, GrpcBackends(channels), ledger, deadline_s=settings.http_deadline_s, clock=SystemClock()
        )
        app = build_app(
            AppDeps(
                dispatcher=dispatcher,
                health=HealthReader(version(), ch.ping, channels),
                metrics_text=prometheus_text,
                metrics_content_type=PROMETHEUS_CONTENT_TYPE,
                version=version(),
                public=PublicAddress(settings.public_url),
                loopback=settings.listen.startswith("unix:") or is_loopback(settings.listen.rpartition(":")[0]),
                toolset=settings.mcp_toolset,
                max_body_bytes=settings.http_max_body_bytes,
            )
        )
        http_address = await stack.enter_async_context(serving_http(app, settings.listen, drain_s=settings.drain_s))
        yield RunningGateway(server, http_address)


def _spec(settings: GatewaySettings, ch: ClickHouse, identity: Identity) -> ServiceSpec:
    return ServiceSpec(
        ServiceName.IDENTITY.value,
        settings.identity_listen,
        (
            Service(
                identity_pb2_grpc.add_IdentityServiceServicer_to_server,
                identity.identity_servicer,
                "loom.identity.v1.IdentityService",
            ),
            Service(
                directory_pb2_grpc.add_DirectoryServiceServicer_to_server,
                identity.directory_servicer,
                "loom.identity.v1.DirectoryService",
            ),
        ),
        IdentityStatus(ch),
    )


async def _channel(stack: AsyncExitStack, settings: GatewaySettings, key: ServiceKey, addr: str) -> grpc.aio.Channel:
    channel = open_channel(
        addr, key, deadline_s=settings.default_deadline_s, max_message_bytes=settings.grpc_max_message_bytes
    )
    stack.push_async_callback(channel.close, None)
    return channel
