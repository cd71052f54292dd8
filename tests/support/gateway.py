"""A gateway over real gRPC services that keep what they are told in memory, served by uvicorn on a free port."""

import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import pytest
import pytest_asyncio
from google.protobuf import message_factory

from loom.memory.v1 import memory_pb2, search_pb2
from loom_common.auth.claims import Claims, NamespaceGrant, Role
from loom_common.auth.directory import FakeDirectory, NamespaceInfo
from loom_common.auth.service_credentials import ServiceKey, ServiceKeyring, generate_service_keys
from loom_common.auth.tokens import SigningKey, sign_token
from loom_common.auth.verifier import LocalIdentity, TokenVerifier
from loom_common.call import Call, current
from loom_common.channel import open_channel
from loom_common.citations import encode
from loom_common.clock import SystemClock
from loom_common.errors import LoomError
from loom_common.ids import new_id
from loom_common.ledger import FakeLedgerSink
from loom_common.ops import OpSpec
from loom_common.server import ServerDeps, Service, ServiceSpec, serving
from loom_common.settings import CommonSettings
from loom_common.status import FixedStatus
from loom_gateway.calls.admission import Admission, AdmissionLimits
from loom_gateway.calls.backends import GrpcBackends
from loom_gateway.calls.dispatch import Dispatcher
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.http.app import AppDeps, build_app
from loom_gateway.http.health import HealthReader
from loom_gateway.http.origins import PublicAddress
from loom_gateway.listener import serving_http
from loom_gateway.mcp.toolsets import Toolset
from loom_memory.domain.reader import block

OWNERS = ("identity", "embedding", "memory", "insights", "assistant")

Reply = Callable[[Any], Any]  # Any: requests and answers of every operation


@dataclass
class Seen:
    """One call as a service saw it."""

    op: str
    request: Any
    call: Call
    metadata: dict[str, str | bytes]


@dataclass
class Services:
    """What the services behind the gateway were asked, and what they answer."""

    seen: list[Seen] = field(default_factory=list)
    memories: dict[str, memory_pb2.Memory] = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)
    """Answers by operation, before the usual ones; a reply may raise a LoomError, or be awaited."""

    def answer(self, spec: OpSpec, request: Any) -> Any:
        if spec.name in self.replies:
            return self.replies[spec.name](request)
        if spec.name == "memory.set":
            return self._set(request)
        if spec.name == "memory.get":
            held = self.memories.get(request.key)
            return memory_pb2.GetMemoryResponse(found=held is not None, memory=held)
        if spec.name == "search.query":
            return self._search(request)
        return message_factory.GetMessageClass(spec.response)()

    def _set(self, request: memory_pb2.SetMemoryRequest) -> memory_pb2.SetMemoryResponse:
        key = request.key or new_id()
        held = self.memories.get(key)
        version = held.version + 1 if held is not None else 1
        self.memories[key] = memory_pb2.Memory(
            namespace=request.namespace or "team-a",
            key=key,
            value=request.value,
            kind=request.kind or "note",
            importance=request.importance if request.HasField("importance") else 0.5,
            version=version,
            updated_at="2026-11-30T13:05:00.000Z",
        )
        return memory_pb2.SetMemoryResponse(key=key, version=version, stored=True)

    def _search(self, request: search_pb2.SearchRequest) -> search_pb2.SearchResponse:
        found = [memory for memory in self.memories.values() if request.query in memory.value]
        section = search_pb2.MemorySection(candidates_total=len(found))
        for memory in found[: request.top_k or 5]:
            section.hits.add(memory=memory, score=0.66, similarity=0.66)
        shown = [hit.memory for hit in section.hits]
        lines = [f"[2026-11-30] [{encode(memory.key)}] ({memory.kind}) {memory.value}" for memory in shown]
        section.rendered = block("memories", lines)
        section.abstain_code = "" if found else "no_match"
        return search_pb2.SearchResponse(memory=section)


@dataclass
class GatewayUnderTest:
    """The running gateway and all that a test may look at or turn."""

    url: str
    services: Services
    ledger: FakeLedgerSink
    identity: LocalIdentity
    key: SigningKey
    probe: "Probe"
    channels: dict[str, grpc.aio.Channel] = field(default_factory=dict)
    """The gateway's own channels to the services."""

    def forget(self) -> None:
        """Forgets everything that was stored, seen and recorded."""
        self.services.seen.clear()
        self.services.memories.clear()
        self.services.replies.clear()
        self.ledger.entries.clear()
        self.probe.error = None

    def token(self, role: Role = Role.WRITER, **changed: Any) -> str:
        return sign_token(claims(role, **changed), self.key)

    def client(self, token: str | None = "", **headers: str) -> httpx.AsyncClient:
        """Returns a client with a writer's token, with the one given, or for None without one."""
        held = self.token() if token == "" else token
        found = {"Authorization": f"Bearer {held}"} if held is not None else {}
        return httpx.AsyncClient(base_url=self.url, headers={**found, **headers}, trust_env=False)


@dataclass
class Probe:
    """Stands for the database's ping."""

    error: Exception | None = None

    async def __call__(self) -> None:
        if self.error is not None:
            raise self.error


def claims(role: Role = Role.WRITER, **changed: Any) -> Claims:
    now = time.time()
    facts: dict[str, Any] = {
        "sub": "sa:bot",
        "org": "acme",
        "namespaces": (NamespaceGrant("team-a", role),),
        "jti": new_id(),
        "iat": now,
        "exp": now + 600,
    }
    return Claims(**{**facts, **changed})


def _handlers(specs: list[OpSpec], services: Services) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
    def handler(spec: OpSpec) -> "grpc.RpcMethodHandler[Any, Any]":
        async def answer(request: Any, context: Any) -> Any:
            services.seen.append(Seen(spec.name, request, current(), dict(context.invocation_metadata())))
            answered = services.answer(spec, request)
            return await answered if inspect.isawaitable(answered) else answered

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=message_factory.GetMessageClass(spec.request).FromString,
            response_serializer=message_factory.GetMessageClass(spec.response).SerializeToString,
        )

    return {spec.method.rpartition("/")[2]: handler(spec) for spec in specs}


def _services(owner: str, services: Services) -> Iterator[Service]:
    """Yields the public gRPC services of one owner, every operation answered by `services`."""
    by_service: dict[str, list[OpSpec]] = {}
    for op in Catalogue().values():
        if op.spec.owner == owner:
            by_service.setdefault(op.spec.service, []).append(op.spec)
    for name, specs in by_service.items():

        def add(servicer: object, server: Any, name: str = name, specs: list[OpSpec] = specs) -> None:
            handlers = _handlers(specs, services)
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
            server.add_registered_method_handlers(name, handlers)

        yield Service(add, object(), name)


@asynccontextmanager
async def running_gateway(
    tmp_path: Path,
    *,
    public_url: str = "",
    loopback: bool = True,
    toolset: Toolset = Toolset.DEFAULT,
    admission: AdmissionLimits | None = None,
    more: Sequence[Service] = (),
    **app_facts: Any,
) -> AsyncIterator[GatewayUnderTest]:
    """Serves a gateway.

    Args:
        tmp_path: Where its keys lie.
        public_url: See `PublicAddress`.
        loopback: See `AppDeps`.
        toolset: See `AppDeps`.
        admission: How many calls run at once.
        more: Further gRPC services, at memory's address.
        app_facts: Further fields of `AppDeps`.
    """
    key = SigningKey.generate()
    identity = LocalIdentity(key)
    verifier = TokenVerifier(identity, identity, SystemClock())
    keyring = ServiceKeyring.load(generate_service_keys(tmp_path / "keys", ["gateway", *OWNERS]))
    directory = FakeDirectory([NamespaceInfo("acme", "team-a"), NamespaceInfo("acme", "team-b")])
    services, ledger, probe = Services(), FakeLedgerSink(), Probe()
    settings = CommonSettings.load({}, environ={"LOOM_DATA_DIR": str(tmp_path)})
    own_key = ServiceKey.load(tmp_path / "keys" / "gateway.jwk")
    async with AsyncExitStack() as stack:
        deps = ServerDeps(verifier=verifier, keyring=keyring, directory=directory, ledger=None)
        channels = {}
        for owner in OWNERS:
            served = [*_services(owner, services), *(more if owner == "memory" else ())]
            spec = ServiceSpec(owner, "127.0.0.1:0", served, FixedStatus())
            server = await stack.enter_async_context(serving(spec, settings, deps))
            channels[owner] = open_channel(server.address, own_key)
            stack.push_async_callback(channels[owner].close, None)
        app = build_app(
            AppDeps(
                dispatcher=Dispatcher(
                    verifier, GrpcBackends(channels), ledger, deadline_s=20, admission=Admission(admission)
                ),
                health=HealthReader("0.1.0", probe, channels),
                metrics_text=lambda: b"# metrics\n",
                metrics_content_type="text/plain; version=0.0.4",
                version="0.1.0",
                public=PublicAddress(public_url),
                loopback=loopback,
                toolset=toolset,
                **app_facts,
            )
        )
        address = await stack.enter_async_context(serving_http(app, "127.0.0.1:0", drain_s=1))
        yield GatewayUnderTest(f"http://{address}", services, ledger, identity, key, probe, channels)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with running_gateway(tmp_path) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting_gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayUnderTest]:
    """One gateway for a file whose tests share an event loop and `forget` before they begin."""
    async with running_gateway(tmp_path_factory.mktemp("gateway")) as found:
        yield found


def raising(error: LoomError) -> Reply:
    def reply(_request: Any) -> Any:
        raise error

    return reply


__all__ = [
    "GatewayUnderTest",
    "Probe",
    "Services",
    "claims",
    "gateway",
    "lasting_gateway",
    "raising",
    "running_gateway",
]
