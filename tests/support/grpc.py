"""A deployment's keys, tokens and servers for tests: real gRPC on a free port, with identity in this process."""

import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2

from loom.memory.v1 import memory_pb2 as pb
from loom.memory.v1 import memory_pb2_grpc as pb_grpc
from loom_common.auth.claims import Claims, NamespaceGrant, ReadScope, Role
from loom_common.auth.directory import FakeDirectory, NamespaceInfo
from loom_common.auth.service_credentials import ServiceKey, ServiceKeyring, generate_service_keys
from loom_common.auth.tokens import SigningKey, sign_token
from loom_common.auth.verifier import LocalIdentity, TokenVerifier
from loom_common.call import Call, current
from loom_common.channel import open_channel
from loom_common.clock import Clock, SystemClock
from loom_common.ids import new_id
from loom_common.ledger import FakeLedgerSink
from loom_common.server import RunningServer, ServerDeps, Service, ServiceSpec, serving
from loom_common.settings import CommonSettings
from loom_common.status import FixedStatus, StatusSource

SERVICES = ("gateway", "embedding", "llm", "memory", "insights", "assistant", "operator")

Metadata = tuple[tuple[str, str | bytes], ...]


def bearer(token: str, *more: tuple[str, str | bytes]) -> Metadata:
    """Returns the metadata of a call with that token."""
    return (("authorization", f"Bearer {token}"), *more)


def error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    """Returns the one `ErrorInfo` of a failed call."""
    return _only(error, error_details_pb2.ErrorInfo)


def bad_request(error: grpc.aio.AioRpcError) -> error_details_pb2.BadRequest:
    """Returns the field violations of a failed call."""
    return _only(error, error_details_pb2.BadRequest)


def retry_info(error: grpc.aio.AioRpcError) -> error_details_pb2.RetryInfo:
    """Returns how long the caller of a failed call should wait."""
    return _only(error, error_details_pb2.RetryInfo)


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Returns the reason of a failed call."""
    return str(error_info(error).reason)


def _only(error: grpc.aio.AioRpcError, kind: type[Any]) -> Any:
    found = []
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            for detail in status_pb2.Status.FromString(value).details:
                message = kind()
                if detail.Unpack(message):
                    found.append(message)
    assert len(found) == 1, f"{len(found)} of {kind.__name__} in {error.code()} {error.details()}"
    return found[0]


@dataclass(slots=True)
class Deployment:
    """Keys, identity and directory of one deployment, in this process."""

    keys: Path
    """Directory with every service's private key and the keyring."""
    clock: Clock = field(default_factory=SystemClock)
    signing_key: SigningKey = field(default_factory=SigningKey.generate)
    directory: FakeDirectory = field(default_factory=FakeDirectory)
    ledger: FakeLedgerSink = field(default_factory=FakeLedgerSink)
    identity: LocalIdentity = field(init=False)
    keyring: ServiceKeyring = field(init=False)

    def __post_init__(self) -> None:
        self.identity = LocalIdentity(self.signing_key)
        self.keyring = ServiceKeyring.load(generate_service_keys(self.keys, SERVICES))
        for name in ("default", "team"):
            self.directory.add(NamespaceInfo("acme", name))
        self.directory.add(NamespaceInfo("acme", "secret", restricted=True))

    def service_key(self, name: str) -> ServiceKey:
        """Returns the private key of a service."""
        return ServiceKey.load(self.keys / f"{name}.jwk")

    def claims(
        self, *grants: str, org: str = "acme", subject: str = "sa:bot", ttl_s: float = 3600, **more: Any
    ) -> Claims:
        """Returns claims; a grant is `namespace:role`. Default: writer on `default`."""
        now_s = self.clock.now().timestamp()
        pairs = [grant.rpartition(":") for grant in grants or ("default:writer",)]
        namespaces = tuple(NamespaceGrant(name, Role[role.upper()]) for name, _, role in pairs)
        facts = {"jti": new_id(), "iat": now_s, "exp": now_s + ttl_s, "read_scope": ReadScope.NAMESPACE, **more}
        return Claims(sub=subject, org=org, namespaces=namespaces, **facts)

    def token(self, *grants: str, **more: Any) -> str:
        """Returns a token of these claims."""
        return sign_token(self.claims(*grants, **more), self.signing_key)

    @property
    def deps(self) -> ServerDeps:
        """What a server of this deployment needs."""
        verifier = TokenVerifier(self.identity, self.identity, self.clock)
        return ServerDeps(verifier, self.keyring, self.directory, self.ledger)

    @contextlib.asynccontextmanager
    async def serving(
        self,
        *services: Service,
        name: str = "memory",
        listen: str = "127.0.0.1:0",
        status: StatusSource | None = None,
        deps: ServerDeps | None = None,
        **settings: Any,
    ) -> AsyncIterator[RunningServer]:
        """Serves the services on a free port; `settings` are given by the names of their variables."""
        spec = ServiceSpec(name, listen, services, status or FixedStatus())
        given = CommonSettings(**{"LOOM_DRAIN_S": 2, **settings})
        async with serving(spec, given, deps or self.deps) as server:
            yield server

    def channel(self, address: str, service: str | None = None, **more: Any) -> grpc.aio.Channel:
        """Returns a channel as a service's, or as that of an outside program; its stubs raise LoomError."""
        return open_channel(address, self.service_key(service) if service else None, **more)

    def credential(self, service: str) -> tuple[str, str]:
        """Returns the metadata of a service's credential."""
        return ("x-loom-service", self.service_key(service).mint())


class MemoryStandIn(pb_grpc.MemoryServiceServicer):
    """Answers the memory service's RPCs with nothing, and keeps the calls that reached it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.requests: list[Any] = []
        self.error: Exception | None = None

    async def _note(self, request: Any) -> None:
        self.calls.append(current())
        self.requests.append(request)
        if self.error is not None:
            raise self.error

    async def SetMemory(self, request: pb.SetMemoryRequest, context: Any) -> pb.SetMemoryResponse:
        await self._note(request)
        return pb.SetMemoryResponse()

    async def SetManyMemories(self, request: pb.SetManyMemoriesRequest, context: Any) -> pb.SetManyMemoriesResponse:
        await self._note(request)
        return pb.SetManyMemoriesResponse()

    async def GetMemory(self, request: pb.GetMemoryRequest, context: Any) -> pb.GetMemoryResponse:
        await self._note(request)
        return pb.GetMemoryResponse(found=True)

    async def ListMemories(self, request: pb.ListMemoriesRequest, context: Any) -> pb.ListMemoriesResponse:
        await self._note(request)
        return pb.ListMemoriesResponse()

    async def SearchMemories(self, request: pb.SearchMemoriesRequest, context: Any) -> pb.SearchMemoriesResponse:
        await self._note(request)
        return pb.SearchMemoriesResponse(hits=[pb.MemoryHit(), pb.MemoryHit()])

    async def DeleteMemory(self, request: pb.DeleteMemoryRequest, context: Any) -> pb.DeleteMemoryResponse:
        await self._note(request)
        return pb.DeleteMemoryResponse()

    async def ListMemoryVersions(
        self, request: pb.ListMemoryVersionsRequest, context: Any
    ) -> pb.ListMemoryVersionsResponse:
        await self._note(request)
        return pb.ListMemoryVersionsResponse()

    async def RestoreMemory(self, request: pb.RestoreMemoryRequest, context: Any) -> pb.RestoreMemoryResponse:
        await self._note(request)
        return pb.RestoreMemoryResponse()

    async def InspectMemory(self, request: pb.InspectMemoryRequest, context: Any) -> pb.InspectMemoryResponse:
        await self._note(request)
        return pb.InspectMemoryResponse()

    async def GetMemoryProvenance(
        self, request: pb.GetMemoryProvenanceRequest, context: Any
    ) -> pb.GetMemoryProvenanceResponse:
        await self._note(request)
        return pb.GetMemoryProvenanceResponse()

    async def GiveMemoryFeedback(
        self, request: pb.GiveMemoryFeedbackRequest, context: Any
    ) -> pb.GiveMemoryFeedbackResponse:
        await self._note(request)
        return pb.GiveMemoryFeedbackResponse()

    @property
    def service(self) -> Service:
        """What a server serves it as."""
        return Service(pb_grpc.add_MemoryServiceServicer_to_server, self, "loom.memory.v1.MemoryService")


@dataclass(slots=True)
class MemoryUnderTest:
    """A running memory service and a raw stub, whose errors are gRPC's own."""

    deployment: Deployment
    servicer: MemoryStandIn
    server: RunningServer
    stub: "pb_grpc.MemoryServiceAsyncStub"
    raw: grpc.aio.Channel


@pytest.fixture(scope="session")
def service_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the keys of every service."""
    directory = tmp_path_factory.mktemp("keys")
    generate_service_keys(directory, SERVICES)
    return directory


@pytest.fixture
def deployment(service_keys: Path) -> Deployment:
    """A deployment with the namespaces `default`, `team` and the restricted `secret` in the organisation `acme`."""
    return Deployment(service_keys)


@pytest.fixture
async def memory(deployment: Deployment) -> AsyncIterator[MemoryUnderTest]:
    """A memory service that stores nothing, on a real server."""
    servicer = MemoryStandIn()
    async with (
        deployment.serving(servicer.service) as server,
        grpc.aio.insecure_channel(server.address) as raw,
    ):
        yield MemoryUnderTest(deployment, servicer, server, pb_grpc.MemoryServiceStub(raw), raw)


def pairs(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str | bytes]:
    """Returns metadata as a mapping."""
    return dict(metadata or ())
