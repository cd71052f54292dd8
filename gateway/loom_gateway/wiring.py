"""Builds the gateway and hands its parts to each other: identity over gRPC first, then HTTP and MCP in front of all."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import grpc.aio
from starlette.middleware import Middleware
from starlette.types import ASGIApp

from loom_common.auth.service_credentials import ServiceKey
from loom_common.channel import open_channel
from loom_common.clickhouse import ClickHouse
from loom_common.clock import SystemClock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.erasure import erasure_service
from loom_common.errors import InvalidArgument, LoomError
from loom_common.ledger import GrpcLedgerSink
from loom_common.migrations import migrate
from loom_common.peers import load_service_keys
from loom_common.sealing import Sealer
from loom_common.server import RunningServer, ServerDeps, ServiceSpec, serving
from loom_common.settings import Service as ServiceName
from loom_common.settings import SettingsError
from loom_common.status import Problem, StatusReport, version
from loom_common.telemetry import PROMETHEUS_CONTENT_TYPE, prometheus_text
from loom_gateway.calls.admission import Admission, AdmissionLimits
from loom_gateway.calls.backends import GrpcBackends
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.http.app import AppDeps, build_app
from loom_gateway.http.connections import ConnectionLimits
from loom_gateway.http.health import HealthReader
from loom_gateway.http.origins import PublicAddress, is_loopback
from loom_gateway.identity.domain.trusts import check_jwks_url
from loom_gateway.identity.service import Identity, open_identity
from loom_gateway.identity.store.census import CENSUS
from loom_gateway.listener import serving_http
from loom_gateway.oauth.routes import OAuth, OAuthDeps
from loom_gateway.oauth.spent import StoredSpent
from loom_gateway.oauth.store import UseRepository
from loom_gateway.settings import GatewaySettings, split_list
from loom_gateway.signin.device import DeviceRoutes
from loom_gateway.signin.oidc import FLOW_PURPOSE, OidcSignIn
from loom_gateway.signin.people import SignedInPeople
from loom_gateway.signin.provider import Client, Provider
from loom_gateway.signin.routes import SignInRoutes
from loom_gateway.signin.tokens import SessionTokens

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
        identity = await stack.enter_async_context(_open_identity(settings, ch))
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
            identity.verifier,
            GrpcBackends(channels),
            ledger,
            deadline_s=settings.http_deadline_s,
            clock=SystemClock(),
            admission=Admission(_admission_limits(settings)),
        )
        app = _app(settings, ch, identity, dispatcher, HealthReader(version(), ch.ping, channels))
        limits = ConnectionLimits(settings.http_max_connections, settings.http_keep_alive_s)
        http_address = await stack.enter_async_context(
            serving_http(app, settings.listen, drain_s=settings.drain_s, limits=limits)
        )
        yield RunningGateway(server, http_address)


def _open_identity(settings: GatewaySettings, ch: ClickHouse) -> AbstractAsyncContextManager[Identity]:
    return open_identity(
        ch,
        settings.jwt_secret,
        settings.jwt_secret_previous,
        SystemClock(),
        policy_refresh_s=settings.policy_refresh_s,
        key_replaced_after=timedelta(days=settings.signing_key_days) if settings.signing_key_days else None,
        session_life=timedelta(hours=settings.session_hours),
    )


def _app(
    settings: GatewaySettings, ch: ClickHouse, identity: Identity, dispatcher: Dispatcher, health: HealthReader
) -> ASGIApp:
    """Returns what answers over HTTP: operations, MCP, and how people and programs sign in."""
    public = PublicAddress(settings.public_url)
    oidc = _oidc(settings, identity, public)
    device = DeviceRoutes(identity.device, identity.sessions, public)
    sign_in = SignInRoutes(identity.sessions, public, [oidc.way] if oidc else [])
    oauth = OAuth(
        OAuthDeps(
            people=SignedInPeople(identity.sessions, public.prefix),
            spent=StoredSpent(ConditionalWrites(ch, NAME), UseRepository(ch), SystemClock()),
            secret=settings.jwt_secret,
            previous_secret=settings.jwt_secret_previous,
            clock=SystemClock(),
            public=public,
        )
    )
    return build_app(
        AppDeps(
            oauth=oauth,
            routes=(*sign_in.routes, *(oidc.routes if oidc else []), *device.routes),
            layers=(Middleware(SessionTokens, sessions=identity.sessions, public=public),),
            dispatcher=dispatcher,
            health=health,
            metrics_text=prometheus_text,
            metrics_content_type=PROMETHEUS_CONTENT_TYPE,
            version=version(),
            public=public,
            loopback=settings.listen.startswith("unix:") or is_loopback(settings.listen.rpartition(":")[0]),
            toolset=settings.mcp_toolset,
            max_body_bytes=settings.http_max_body_bytes,
            max_import_bytes=settings.http_max_import_bytes,
            allowed_hosts=split_list(settings.http_allowed_hosts),
            allowed_origins=split_list(settings.http_allowed_origins),
        )
    )


def _oidc(settings: GatewaySettings, identity: Identity, public: PublicAddress) -> OidcSignIn | None:
    """Returns how people sign in with an identity provider; None where none is set.

    Raises:
        SettingsError: Its address or Loom's name there cannot be used.
    """
    if not settings.oidc_issuer:
        return None
    if not settings.oidc_client_id:
        raise SettingsError("LOOM_OIDC_CLIENT_ID is missing: it is what the identity provider knows Loom by.")
    try:
        check_jwks_url(settings.oidc_issuer, by_operator=True)
    except InvalidArgument:
        raise SettingsError("LOOM_OIDC_ISSUER must be an https address, or http on loopback.") from None
    secret = settings.oidc_client_secret
    client = Client(settings.oidc_issuer, settings.oidc_client_id, secret.get_secret_value() if secret else "")
    clock = SystemClock()
    return OidcSignIn(
        Provider(client, identity.issuer_tokens, clock),
        identity.sessions,
        identity.accounts,
        identity.grants,
        Sealer(settings.jwt_secret, settings.jwt_secret_previous, purpose=FLOW_PURPOSE),
        public,
        clock,
    )


def _admission_limits(settings: GatewaySettings) -> AdmissionLimits:
    return AdmissionLimits(
        max_calls=settings.http_max_calls,
        max_waiting=settings.http_max_waiting_calls,
        wait_s=settings.http_max_wait_s,
        max_streams=settings.http_max_streams,
    )


def _spec(settings: GatewaySettings, ch: ClickHouse, identity: Identity) -> ServiceSpec:
    return ServiceSpec(
        ServiceName.IDENTITY.value,
        settings.identity_listen,
        (*identity.services, erasure_service(ch, CENSUS)),
        IdentityStatus(ch),
    )


async def _channel(stack: AsyncExitStack, settings: GatewaySettings, key: ServiceKey, addr: str) -> grpc.aio.Channel:
    channel = open_channel(
        addr, key, deadline_s=settings.default_deadline_s, max_message_bytes=settings.grpc_max_message_bytes
    )
    stack.push_async_callback(channel.close, None)
    return channel
