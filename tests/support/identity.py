"""A running identity: its gRPC server over a real engine, and stubs that call it as whoever a test needs."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import grpc.aio
from pydantic import SecretStr

from loom.identity.v1 import access_pb2_grpc, directory_pb2_grpc, identity_pb2, identity_pb2_grpc
from loom_common.auth.service_credentials import ServiceKey, ServiceKeyring, generate_service_keys
from loom_common.channel import open_channel
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock, SystemClock
from loom_common.migrations import migrate
from loom_common.server import ServerDeps, ServiceSpec, serving
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


@dataclass(frozen=True, slots=True)
class OrgIdentity:
    """One organisation of a running identity that several tests share."""

    running: RunningIdentity
    org: str

    @property
    def identity(self) -> Identity:
        """Identity inside this process."""
        return self.running.identity

    @property
    def outside(self) -> "identity_pb2_grpc.IdentityServiceAsyncStub":
        """See `RunningIdentity.outside`."""
        return self.running.outside

    @property
    def operator(self) -> "identity_pb2_grpc.IdentityServiceAsyncStub":
        """See `RunningIdentity.operator`."""
        return self.running.operator

    def access(self, service: str = "") -> "access_pb2_grpc.AccessServiceAsyncStub":
        """Calls `AccessService` with a service's credential, or with none."""
        return access_pb2_grpc.AccessServiceStub(self.running.channel(service))

    def channel(self, service: str = "") -> grpc.aio.Channel:
        """See `RunningIdentity.channel`."""
        return self.running.channel(service)

    def directory(self, service: str = "memory") -> "directory_pb2_grpc.DirectoryServiceAsyncStub":
        """See `RunningIdentity.directory`."""
        return self.running.directory(service)

    async def namespace(self, name: str, **more: object) -> None:
        """Makes a namespace as the operator."""
        await self.running.namespace(name, self.org, **more)

    async def token(self, *grants: str, subject: str = "sa:bot", org: str = "", **more: object) -> str:
        """Makes a token as the operator; a grant is `namespace:role`. Returns it."""
        return await self.running.token(*grants, org=org or self.org, subject=subject, **more)


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
    previous_secret: SecretStr | None = None,
    clock: Clock | None = None,
    policy_refresh_s: float = 2.0,
    key_replaced_after: timedelta | None = None,
) -> AsyncIterator[RunningIdentity]:
    """Runs identity over `ch`; several may run over one database, as replicas do."""
    keyring = ServiceKeyring.load(generate_service_keys(keys, SERVICES))
    await migrate(ch, "gateway", "loom_gateway")
    async with AsyncExitStack() as stack:
        identity = await stack.enter_async_context(
            open_identity(
                ch,
                secret,
                previous_secret,
                clock or SystemClock(),
                policy_refresh_s=policy_refresh_s,
                key_replaced_after=key_replaced_after,
            )
        )
        spec = ServiceSpec(
            "identity",
            "127.0.0.1:0",
            identity.services,
            FixedStatus(),
        )
        deps = ServerDeps(identity.verifier, keyring, identity.directory, identity_ready=identity.feed.fresh)
        server = await stack.enter_async_context(serving(spec, CommonSettings(drain_s=2), deps))
        stack.callback(identity.feed.close)
        yield RunningIdentity(identity, server.address, keys, stack)
