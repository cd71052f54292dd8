"""Who gets past a server's door, over a real socket."""

import asyncio

import grpc
import pytest
from support.grpc import MemoryUnderTest, bearer, error_info, reason_of

from loom.common.v1 import status_pb2, status_pb2_grpc
from loom.identity.v1 import identity_pb2, identity_pb2_grpc
from loom.memory.v1 import memory_pb2 as pb
from loom_common.attribution import Attribution
from loom_common.auth.claims import ReadScope
from loom_common.auth.revocations import Revocation
from loom_common.auth.tokens import SigningKey, sign_token
from loom_common.call import Scope

GET = pb.GetMemoryRequest(key="k")


async def refused(memory: MemoryUnderTest, request: pb.GetMemoryRequest, *metadata: tuple[str, str | bytes]) -> str:
    before = len(memory.servicer.calls)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await memory.stub.GetMemory(request, metadata=metadata, timeout=10)
    assert len(memory.servicer.calls) == before
    return reason_of(caught.value)


async def test_a_call_without_a_token_is_unauthenticated(memory: MemoryUnderTest) -> None:
    assert await refused(memory, GET) == "UNAUTHENTICATED"


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic abc", "Bearer not.a.token", "Bearer " + "x" * 17_000]
)
async def test_an_authorization_that_is_no_token_is_unauthenticated(memory: MemoryUnderTest, header: str) -> None:
    assert await refused(memory, GET, ("authorization", header)) == "UNAUTHENTICATED"


async def test_a_token_of_a_foreign_key_is_unauthenticated(memory: MemoryUnderTest) -> None:
    foreign = SigningKey.generate(memory.deployment.signing_key.kid)
    token = sign_token(memory.deployment.claims(), foreign)
    assert await refused(memory, GET, *bearer(token)) == "UNAUTHENTICATED"


async def test_an_expired_token_says_so(memory: MemoryUnderTest) -> None:
    assert await refused(memory, GET, *bearer(memory.deployment.token(ttl_s=-1))) == "TOKEN_EXPIRED"


async def test_a_revoked_token_says_so_although_it_was_verified_before(memory: MemoryUnderTest) -> None:
    claims = memory.deployment.claims()
    token = sign_token(claims, memory.deployment.signing_key)
    await memory.stub.GetMemory(GET, metadata=bearer(token))
    memory.deployment.identity.revocations.add(Revocation("token", claims.jti, claims.iat))
    assert await refused(memory, GET, *bearer(token)) == "TOKEN_REVOKED"


async def test_a_good_token_reaches_the_service_in_its_default_namespace(memory: MemoryUnderTest) -> None:
    token = memory.deployment.token("team:viewer", "default:writer")
    await memory.stub.GetMemory(GET, metadata=bearer(token, ("x-loom-run-id", "run-1"), ("idempotency-key", "i")))
    call = memory.servicer.calls[0]
    assert call.scope == Scope("acme", "team")
    assert call.claims is not None
    assert (call.claims.sub, call.token, call.run_id, call.idempotency_key) == ("sa:bot", token, "run-1", "i")
    assert (call.op, call.peer_service) == ("memory.get", None)
    assert call.attribution is not None
    assert (call.attribution.org, call.attribution.feature, call.attribution.read_only) == ("acme", "memory.get", True)


async def test_the_header_names_the_namespace_where_the_body_does_not(memory: MemoryUnderTest) -> None:
    token = memory.deployment.token("team:viewer", "default:writer")
    await memory.stub.GetMemory(GET, metadata=bearer(token, ("x-loom-namespace", "default")))
    assert memory.servicer.calls[0].scope == Scope("acme", "default")


async def test_body_and_header_that_differ_are_refused(memory: MemoryUnderTest) -> None:
    token = memory.deployment.token("team:viewer", "default:writer")
    request = pb.GetMemoryRequest(key="k", namespace="team")
    assert await refused(memory, request, *bearer(token, ("x-loom-namespace", "default"))) == "INVALID_ARGUMENT"


@pytest.mark.parametrize("name", ["_system", "_none", "*", "a\x00b", "n" * 129, ""])
async def test_a_namespace_name_that_nobody_may_address_is_refused(memory: MemoryUnderTest, name: str) -> None:
    token = memory.deployment.token("*:admin")
    request = pb.GetMemoryRequest(key="k", namespace=name)
    assert await refused(memory, request, *bearer(token)) == "INVALID_ARGUMENT"


async def test_a_namespace_that_the_token_does_not_name_is_insufficient(memory: MemoryUnderTest) -> None:
    request = pb.GetMemoryRequest(key="k", namespace="team")
    assert await refused(memory, request, *bearer(memory.deployment.token("default:writer"))) == "AUTH_INSUFFICIENT"


async def test_another_organisation_is_insufficient(memory: MemoryUnderTest) -> None:
    request = pb.GetMemoryRequest(key="k", org="umbrella")
    assert await refused(memory, request, *bearer(memory.deployment.token())) == "AUTH_INSUFFICIENT"


async def test_a_viewer_may_not_write(memory: MemoryUnderTest) -> None:
    token = memory.deployment.token("default:viewer")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await memory.stub.SetMemory(pb.SetMemoryRequest(key="k", value="v"), metadata=bearer(token))
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    info = error_info(caught.value)
    assert (info.reason, info.metadata["namespace"]) == ("AUTH_INSUFFICIENT", "default")
    assert memory.servicer.calls == []


@pytest.mark.parametrize("namespace", ["nowhere", "secret"])
async def test_an_org_wide_token_finds_neither_a_missing_nor_a_restricted_namespace(
    memory: MemoryUnderTest, namespace: str
) -> None:
    request = pb.GetMemoryRequest(key="k", namespace=namespace)
    assert await refused(memory, request, *bearer(memory.deployment.token("*:admin"))) == "NOT_FOUND"


async def test_a_restricted_namespace_is_open_to_a_token_that_names_it(memory: MemoryUnderTest) -> None:
    await memory.stub.GetMemory(GET, metadata=bearer(memory.deployment.token("secret:viewer")))
    assert memory.servicer.calls[0].scope == Scope("acme", "secret")


async def test_an_org_wide_token_must_say_which_namespace(memory: MemoryUnderTest) -> None:
    assert await refused(memory, GET, *bearer(memory.deployment.token("*:admin"))) == "INVALID_ARGUMENT"


async def test_a_service_credential_alone_reaches_no_public_operation(memory: MemoryUnderTest) -> None:
    for service in ("memory", "gateway", "operator"):
        assert await refused(memory, GET, memory.deployment.credential(service)) == "AUTH_INSUFFICIENT"


async def test_a_forged_service_credential_is_refused_beside_a_good_token(memory: MemoryUnderTest) -> None:
    token = memory.deployment.token()
    assert await refused(memory, GET, *bearer(token, ("x-loom-service", token))) == "UNAUTHENTICATED"
    assert await refused(memory, GET, *bearer(token, ("x-loom-service", "x.y.z"))) == "UNAUTHENTICATED"


async def test_a_service_credential_is_no_callers_token(memory: MemoryUnderTest) -> None:
    credential = memory.deployment.service_key("memory").mint()
    assert await refused(memory, GET, *bearer(credential)) == "UNAUTHENTICATED"


async def test_attribution_and_request_id_from_outside_are_dropped(memory: MemoryUnderTest) -> None:
    forged = Attribution(org="umbrella", feature="memory.set")
    metadata = bearer(
        memory.deployment.token(), ("loom-attribution-bin", forged.to_bytes()), ("x-request-id", "another's")
    )
    await memory.stub.GetMemory(GET, metadata=metadata)
    call = memory.servicer.calls[0]
    assert call.attribution is not None
    assert call.attribution.org == "acme"
    assert call.request_id != "another's"


async def test_attribution_and_request_id_of_a_service_count(memory: MemoryUnderTest) -> None:
    sent = Attribution(org="acme", namespace="default", feature="search.query", user_id="u")
    metadata = bearer(
        memory.deployment.token(),
        memory.deployment.credential("gateway"),
        ("loom-attribution-bin", sent.to_bytes()),
        ("x-request-id", "r-1"),
    )
    await memory.stub.GetMemory(GET, metadata=metadata)
    call = memory.servicer.calls[0]
    assert (call.attribution, call.request_id, call.peer_service) == (sent, "r-1", "gateway")


async def test_attribution_that_cannot_be_read_is_refused_beside_a_credential(memory: MemoryUnderTest) -> None:
    metadata = bearer(
        memory.deployment.token(), memory.deployment.credential("gateway"), ("loom-attribution-bin", b"\xff")
    )
    assert await refused(memory, GET, *metadata) == "MALFORMED_REQUEST"


async def test_a_narrow_token_reaches_what_knows_how_to_be_narrow(memory: MemoryUnderTest) -> None:
    token = memory.deployment.token("default:viewer", read_scope=ReadScope.OWN_USER, user_id="u")
    await memory.stub.GetMemory(GET, metadata=bearer(token))
    assert memory.servicer.calls[0].claims is not None


async def test_status_answers_a_token_and_a_credential_and_nobody_else(memory: MemoryUnderTest) -> None:
    status = status_pb2_grpc.StatusServiceStub(memory.raw)
    request = status_pb2.GetStatusRequest()
    answer = await status.GetStatus(request, metadata=bearer(memory.deployment.token()))
    assert (answer.service, answer.ready) == ("memory", True)
    assert (await status.GetStatus(request, metadata=(memory.deployment.credential("insights"),))).ready
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await status.GetStatus(request)
    assert reason_of(caught.value) == "UNAUTHENTICATED"


async def test_channelz_takes_a_service_credential(memory: MemoryUnderTest) -> None:
    servers = memory.raw.unary_unary("/grpc.channelz.v1.Channelz/GetServers")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await servers(b"")
    assert reason_of(caught.value) == "AUTH_INSUFFICIENT"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await servers(b"", metadata=bearer(memory.deployment.token()))
    assert reason_of(caught.value) == "AUTH_INSUFFICIENT"
    assert await servers(b"", metadata=(memory.deployment.credential("operator"),))


class IdentityStandIn(identity_pb2_grpc.IdentityServiceServicer):
    def __init__(self) -> None:
        self.seen: list[object] = []

    async def CreateToken(self, request: identity_pb2.CreateTokenRequest, context: object) -> object:
        from loom_common.call import current

        self.seen.append(current().claims)
        return identity_pb2.CreateTokenResponse(token="t")

    async def ListTokens(self, request: object, context: object) -> object:
        return identity_pb2.ListTokensResponse()

    async def RevokeToken(self, request: object, context: object) -> object:
        return identity_pb2.RevokeTokenResponse()

    async def CreateNamespace(self, request: object, context: object) -> object:
        return identity_pb2.CreateNamespaceResponse()

    async def ListNamespaces(self, request: object, context: object) -> object:
        return identity_pb2.ListNamespacesResponse()


async def test_the_operator_acts_as_an_administrator_for_tokens_and_namespaces(memory: MemoryUnderTest) -> None:
    from support.grpc import Service

    deployment, identity = memory.deployment, IdentityStandIn()
    served = Service(
        identity_pb2_grpc.add_IdentityServiceServicer_to_server, identity, "loom.identity.v1.IdentityService"
    )
    grants = [identity_pb2.NamespaceRole(namespace="default", role="writer")]
    async with (
        deployment.serving(served, name="identity") as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        stub = identity_pb2_grpc.IdentityServiceStub(channel)
        operator = (deployment.credential("operator"),)
        request = identity_pb2.CreateTokenRequest(org="umbrella", namespaces=grants)
        await stub.CreateToken(request, metadata=operator)
        claims = identity.seen[0]
        assert (claims.org, claims.org_admin, claims.sub) == ("umbrella", True, "svc:operator")  # type: ignore[attr-defined]
        await stub.CreateNamespace(identity_pb2.CreateNamespaceRequest(name="n"), metadata=operator)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CreateToken(request, metadata=(deployment.credential("memory"),))
        assert reason_of(caught.value) == "AUTH_INSUFFICIENT"
        token = deployment.token("default:admin")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CreateNamespace(identity_pb2.CreateNamespaceRequest(name="n"), metadata=bearer(token))
        assert reason_of(caught.value) == "AUTH_INSUFFICIENT"
        narrow = deployment.token("default:admin", read_scope=ReadScope.OWN_SESSION, session_id="s")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CreateToken(identity_pb2.CreateTokenRequest(namespaces=grants), metadata=bearer(narrow))
        assert error_info(caught.value).metadata["reason"] == "narrowed"


async def test_calls_side_by_side_keep_their_own_scope(memory: MemoryUnderTest) -> None:
    tokens = {name: memory.deployment.token(f"{name}:viewer") for name in ("default", "team")}
    await asyncio.gather(
        *(
            memory.stub.GetMemory(pb.GetMemoryRequest(key=name), metadata=bearer(tokens[name]))
            for name in ("default", "team") * 10
        )
    )
    for request, call in zip(memory.servicer.requests, memory.servicer.calls, strict=True):
        assert call.scope == Scope("acme", request.key)
