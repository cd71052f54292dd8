"""A search over everything shows nothing that its token could not read plane by plane, whatever it is asked."""

import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from google.protobuf import json_format, message_factory
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.grpc import Deployment, bearer
from support.memory import memory_over

from loom.memory.v1 import search_pb2
from loom_common.auth.claims import Claims, NamespaceGrant, ReadScope, Role
from loom_common.auth.directory import NamespaceInfo
from loom_common.auth.tokens import sign_token
from loom_common.call import Scope
from loom_common.clickhouse import ClickHouseSettings
from loom_common.clickhouse.embedded import EmbeddedClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.ops import all_ops
from loom_memory.settings import MemorySettings
from loom_memory.unified.app.ports import FakeRepositories
from loom_memory.unified.wiring import Planes, build_unified

pytestmark = pytest.mark.asyncio(loop_scope="module")

SPACES = [
    NamespaceInfo("acme", "main", owner="sa:bot"),
    NamespaceInfo("acme", "team"),
    NamespaceInfo("acme", "vault", restricted=True),
    NamespaceInfo("acme", "src", "code"),
    NamespaceInfo("acme", "hidden", "code", restricted=True),
    NamespaceInfo("umbra", "main"),
    NamespaceInfo("umbra", "vault", restricted=True),
]
OWNERS = [("", ""), ("u1", ""), ("u1", "s1"), ("u2", "s2")]
CHECKOUTS = {
    "src@main": Scope("acme", "src"),
    "hidden@main": Scope("acme", "hidden"),
    "umbra@main": Scope("umbra", "main"),
}
CANARY = re.compile(r"canary[0-9]{3}x")
QUERY = "zenith merger"

# How each plane is read by itself; what any of them shows to a token, a search over everything may show, too.
READS: list[tuple[str, dict[str, Any]]] = [
    ("memory.list", {"page_size": 100}),
    ("knowledge.search", {"query": QUERY, "top_k": 100}),
    ("conversation.search", {"query": QUERY, "top_k": 100}),
    *(("profile.get", {"user_id": user} if user else {}) for user in ("", "u1", "u2")),
]


@dataclass
class World:
    """Two organisations whose every row is a canary of its own."""

    deployment: Deployment
    channel: grpc.aio.Channel
    planted: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Organisation, namespace and plane of each canary."""
    handles: list[str] = field(default_factory=list)
    readable: dict[Claims, frozenset[str]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def plant(self, org: str, namespace: str, plane: str) -> str:
        name = f"canary{len(self.planted):03}x"
        self.planted[name] = (org, namespace, plane)
        return name

    def metadata(self, claims: Claims) -> tuple[tuple[str, str | bytes], ...]:
        return bearer(sign_token(claims, self.deployment.signing_key))

    async def call(self, op: str, body: dict[str, Any], metadata: tuple[tuple[str, str | bytes], ...]) -> Message:
        spec = all_ops()[op]
        request = json_format.ParseDict(body, message_factory.GetMessageClass(spec.request)())
        read: Callable[[bytes], Message] = message_factory.GetMessageClass(spec.response).FromString
        call: Callable[..., Awaitable[Message]] = self.channel.unary_unary(
            spec.method, type(request).SerializeToString, read
        )
        return await call(request, metadata=metadata)

    async def read_plane_by_plane(self, claims: Claims) -> frozenset[str]:
        """Returns the canaries that a token reads with the operations of the single planes."""
        if claims not in self.readable:
            shown: set[str] = set()
            for space, (op, body) in itertools.product(SPACES, READS):
                try:
                    answer = await self.call(
                        op, {"org": space.org, "namespace": space.name, **body}, self.metadata(claims)
                    )
                except grpc.aio.AioRpcError:
                    continue
                shown.update(CANARY.findall(str(answer)))
            self.readable[claims] = frozenset(shown)
        return self.readable[claims]


def claims_of(org: str, grants: dict[str, str], **more: Any) -> Claims:
    named = tuple(NamespaceGrant(name, Role[role.upper()]) for name, role in grants.items())
    return Claims("sa:bot", org, named, "t", 1_700_000_000, 4_000_000_000, **more)


ALL = {org: claims_of(org, {space.name: "admin" for space in SPACES if space.org == org}) for org in ("acme", "umbra")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(clickhouse_engine: EmbeddedEngine, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    ch = EmbeddedClickHouse(clickhouse_engine, "unified_isolation", ClickHouseSettings(pool_size=4))
    await ch.start()
    deployment = Deployment(Path(tmp_path_factory.mktemp("keys")))
    deployment.directory.infos.clear()
    for space in SPACES:
        deployment.directory.add(space)
    harness = await memory_over(ch, directory=deployment.directory)
    parts = harness.parts
    # As it is built, and with checkouts that are indexed.
    planes = Planes(
        parts.knowledge.search,
        parts.unified.planes.profiles,
        parts.unified.planes.conversations,
        repositories=FakeRepositories(dict(CHECKOUTS)),
    )
    unified = build_unified(
        parts.searches, planes, harness.embedding, parts.unified.thresholds, deployment.directory, MemorySettings()
    )
    services = [service for service in parts.services() if service.full_name != "loom.memory.v1.SearchService"]
    async with (
        deployment.serving(*services, unified.service()) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        world = World(deployment, channel)
        for space in SPACES:
            await _fill(world, space)
        for token in ALL.values():
            body = {"query": QUERY, "top_k": 1, "namespace": "main"}
            found = await world.call("search.query", body, world.metadata(token))
            assert isinstance(found, search_pb2.SearchResponse)
            world.handles.append(found.memory.next_page)
        yield world
    await parts.knowledge.leftovers.close()
    await parts.workers.close()
    await ch.command("DROP DATABASE unified_isolation SYNC")
    await ch.close()


async def _fill(world: World, space: NamespaceInfo) -> None:
    place = {"org": space.org, "namespace": space.name}
    metadata = world.metadata(ALL[space.org])
    for number, (user, session) in enumerate(OWNERS):
        for kind in ("fact", "decision"):
            name = world.plant(space.org, space.name, "memory")
            body = {"key": f"{kind}{number}", "value": f"{QUERY} {name}", "kind": kind, "tags": ["t"], "verbatim": True}
            owner = {key: value for key, value in (("user_id", user), ("session_id", session)) if value}
            await world.call("memory.set", {**place, **body, **owner}, metadata)
    for user in ("", "u1", "u2"):
        name = world.plant(space.org, space.name, "profile")
        body = {"label": "zenith", "value": f"{QUERY} {name}", **({"user_id": user} if user else {})}
        await world.call("profile.set_section", {**place, **body}, metadata)
        name, owner = world.plant(space.org, space.name, "conversations"), {"user_id": user} if user else {}
        turns = [{"text": f"{QUERY} {name}", "author": "ann", "role": "user"}]
        talk = {**place, "conversation_id": f"c-{user}", "turns": turns, **owner}
        await world.call("conversation.append", talk, metadata)
    name = world.plant(space.org, space.name, "knowledge")
    document = {"source_uri": "doc.txt", "text": f"{QUERY} {name}", "tags": ["t"]}
    await world.call("knowledge.ingest", {**place, "documents": [document]}, metadata)


NAMES = sorted({space.name for space in SPACES})
ROLES = st.sampled_from(["viewer", "writer", "admin"])


@st.composite
def tokens(draw: st.DrawFn) -> Claims:
    org = draw(st.sampled_from(["acme", "umbra"]))
    grants = draw(st.dictionaries(st.sampled_from([*NAMES, "*", "nowhere"]), ROLES, min_size=1, max_size=3))
    scope = draw(st.sampled_from(list(ReadScope)))
    more: dict[str, Any] = {"read_scope": scope}
    if scope is not ReadScope.NAMESPACE:
        more["user_id"] = draw(st.sampled_from(["u1", "u2"]))
    if scope is ReadScope.OWN_SESSION:
        more["session_id"] = draw(st.sampled_from(["s1", "s2"]))
    return claims_of(org, grants, org_admin=draw(st.booleans()), **more)


REQUESTS = st.fixed_dictionaries(
    {"query": st.sampled_from([QUERY, "zenith", "canary000x", "fact0", "#t"])},
    optional={
        "org": st.sampled_from(["acme", "umbra"]),
        "namespace": st.sampled_from([*NAMES, "nowhere"]),
        "namespace_scope": st.sampled_from(["all_mine", "this"]),
        "top_k": st.sampled_from([1, 3, 100]),
        "tags": st.sampled_from([["t"], ["other"]]),
        "bodies": st.sampled_from(["full", "none", "unit"]),
        "recipe": st.sampled_from(["fast", "verbatim", "graph"]),
        "explain": st.booleans(),
    },
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    claims=tokens(),
    body=REQUESTS,
    header=st.sampled_from(["", "", *NAMES]),
    checkout=st.sampled_from(["", *CHECKOUTS]),
    by_gateway=st.booleans(),
    page=st.sampled_from([None, None, None, 0, 1]),
)
async def test_no_argument_header_or_namespace_list_shows_what_the_token_could_not_read(
    world: World,
    claims: Claims,
    body: dict[str, Any],
    header: str,
    checkout: str,
    by_gateway: bool,
    page: int | None,
) -> None:
    metadata = list(world.metadata(claims))
    if header:
        metadata.append(("x-loom-namespace", header))
    if checkout:
        metadata.append(("x-loom-code-scope", checkout))
    if by_gateway:
        metadata.append(world.deployment.credential("gateway"))
    if page is not None:
        body = {**body, "page": world.handles[page]}
    try:
        answer = await world.call("search.query", body, tuple(metadata))
    except grpc.aio.AioRpcError as error:
        shown = set(CANARY.findall(f"{error.details()} {error.trailing_metadata()}"))
        assert shown <= set(CANARY.findall(str(body))), "a refusal tells nothing"
        return
    shown = set(CANARY.findall(str(answer)))
    assert shown <= await world.read_plane_by_plane(claims)
    world.seen |= shown


async def test_what_a_token_reads_is_found(world: World) -> None:
    """The property would hold of a search that shows nothing."""
    for org, claims in ALL.items():
        body = {"query": QUERY, "top_k": 100, "explain": True, "bodies": "full"}
        shown = set(CANARY.findall(str(await world.call("search.query", body, world.metadata(claims)))))
        kinds = {space.name: space.kind for space in SPACES if space.org == org}
        expected = {name for name, (of, where, _) in world.planted.items() if of == org and kinds[where] == "memory"}
        assert shown == expected
        assert shown <= await world.read_plane_by_plane(claims)


async def test_a_checkouts_decisions_are_shown_to_the_gateways_caller_who_reads_them_alone(world: World) -> None:
    checkout = ("x-loom-code-scope", "src@main")
    credential = world.deployment.credential("gateway")
    reader, other = claims_of("acme", {"main": "viewer", "src": "viewer"}), claims_of("acme", {"main": "viewer"})
    body = {"query": QUERY, "top_k": 100, "bodies": "full"}
    decisions = {name for name, place in world.planted.items() if place[:2] == ("acme", "src")}

    async def shown(claims: Claims, *more: tuple[str, str]) -> set[str]:
        answer = await world.call("search.query", body, (*world.metadata(claims), *more))
        return set(CANARY.findall(str(answer))) & decisions

    assert await shown(reader, checkout, credential)
    assert await shown(reader, checkout) == set(), "a header that no service vouches for counts for nothing"
    assert await shown(other, checkout, credential) == set()


async def test_the_callers_own_namespace_leads_where_it_names_none(world: World) -> None:
    claims = claims_of("acme", {"team": "viewer", "main": "viewer"})

    async def elsewhere(body: dict[str, Any], *more: tuple[str, str]) -> set[str]:
        """Returns the namespaces that hits are told to be of: those that do not lead."""
        asked = {"query": QUERY, "top_k": 100, "explain": True, **body}
        answer = await world.call("search.query", asked, (*world.metadata(claims), *more))
        assert isinstance(answer, search_pb2.SearchResponse)
        return set(re.findall(r"\((?:fact|decision), (\w+)", answer.memory.rendered)) - {"low"}

    assert await elsewhere({}) == {"team"}
    assert await elsewhere({}, ("x-loom-namespace", "team")) == {"main"}
    assert await elsewhere({"namespace": "team"}) == {"main"}
    assert await elsewhere({"namespace_scope": "this"}) == set()
