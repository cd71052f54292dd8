"""A running identity: its gRPC server over a real engine, and stubs that call it as whoever a test needs."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio
from pydantic import SecretStr

from loom.identity.v1 import directory_pb2_grpc, identity_pb2, identity_pb2_grpc
from loom_common.auth.service_credentials import ServiceKey, ServiceKeyring, generate_service_keys
from loom_common.channel import open_channel
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock, SystemClock
from loom_common.migrations import migrate
from loom_common.server import ServerDeps, Service, ServiceSpec, serving
from loom_common.settings import CommonSettings
from loom_common.status import FixedStatus
from loom_gateway.identity.service import Identity, open_identity

SECRET = SecretStr("a secret of this test alone, not short")
SERVICES = ("gateway", "memory", "operator")

Metadata = tuple[tuple[str, str], ...]


def bearer(token: str) -> Metadata:
    """Returns the metadata of a call with that token."""
    return (("authorization", f"Bearer {token}"),)


@dataclass(slots=True)
class RunningIdentity:
    """Identity as services and callers reach it."""

    identity: Identity
    address: str
    keys: Path
    stack: AsyncExitStack
    _channels: dict[str, grpc.aio.Channel] = field(default_factory=dict)

    def channel(self, service: str = "") -> grpc.aio.Channel:
        """Returns a channel with a service's credential, or with none."""
        if service not in self._channels:
            key = ServiceKey.load(self.keys / f"{service}.jwk") if service else None
            self._channels[service] = open_channel(self.address, key)
            self.stack.push_async_callback(self._channels[service].close, None)
        return self._channels[service]

    @property
    def outside(self) -> "identity_pb2_grpc.IdentityServiceAsyncStub":
        """Calls with no credential but the token that a call states."""
        return identity_pb2_grpc.IdentityServiceStub(self.channel())

    @property
    def operator(self) -> "identity_pb2_grpc.IdentityServiceAsyncStub":
        """Calls as the operator, with no token."""
        return identity_pb2_grpc.IdentityServiceStub(self.channel("operator"))

    def directory(self, service: str = "memory") -> "directory_pb2_grpc.DirectoryServiceAsyncStub":
        """Calls the directory as a service."""
        return directory_pb2_grpc.DirectoryServiceStub(self.channel(service))

    async def namespace(self, name: str, org: str = "acme", **more: object) -> None:
        """Makes a namespace as the operator."""
        await self.operator.CreateNamespace(
            identity_pb2.CreateNamespaceRequest(org=org, name=name, **more)  # type: ignore[arg-type]  # any field
        )

    async def token(self, *grants: str, org: str = "acme", subject: str = "sa:bot", **more: object) -> str:
        """Makes a token as the operator; a grant is `namespace:role`. Returns it."""
        made = await self.operator.CreateToken(token_request(*grants, org=org, subject=subject, **more))
        return made.token


def token_request(*grants: str, **more: object) -> identity_pb2.CreateTokenRequest:
    """Returns a request for a token; a grant is `namespace:role`."""
    pairs = [grant.rpartition(":") for grant in grants]
    namespaces = [identity_pb2.NamespaceRole(namespace=name, role=role) for name, _, role in pairs]
    return identity_pb2.CreateTokenRequest(namespaces=namespaces, **more)  # type: ignore[arg-type]  # any field


@asynccontextmanager
async def running_identity(
    ch: ClickHouse,
    keys: Path,
    *,
    secret: SecretStr = SECRET,
    clock: Clock | None = None,
    policy_refresh_s: float = 2.0,
) -> AsyncIterator[RunningIdentity]:
    """Runs identity over `ch`; several may run over one database, as replicas do."""
    keyring = ServiceKeyring.load(generate_service_keys(keys, SERVICES))
    await migrate(ch, "gateway", "loom_gateway")
    async with AsyncExitStack() as stack:
        identity = await stack.enter_async_context(
            open_identity(ch, secret, None, clock or SystemClock(), policy_refresh_s=policy_refresh_s)
        )
        spec = ServiceSpec(
            "identity",
            "127.0.0.1:0",
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
            FixedStatus(),
        )
        deps = ServerDeps(identity.verifier, keyring, identity.directory, identity_ready=identity.feed.fresh)
        server = await stack.enter_async_context(serving(spec, CommonSettings(drain_s=2), deps))
        stack.callback(identity.feed.close)
        yield RunningIdentity(identity, server.address, keys, stack)
