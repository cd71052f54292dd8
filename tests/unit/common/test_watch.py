"""Following identity's keys and revocations over a real stream."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from support.grpc import Deployment, Service

from loom.identity.v1 import directory_pb2, directory_pb2_grpc, identity_pb2
from loom_common.auth.claims import Claims
from loom_common.auth.directory import GrpcDirectory, NamespaceInfo
from loom_common.auth.tokens import jwks, sign_token
from loom_common.auth.verifier import TokenVerifier
from loom_common.auth.watch import IdentityWatch
from loom_common.call import Call, bind, current
from loom_common.clock import FakeClock, SystemClock
from loom_common.errors import BackendUnavailable, TokenRevoked


class IdentityStandIn(directory_pb2_grpc.DirectoryServiceServicer):
    """Sends a snapshot, then what a test puts into the queue; None ends the stream."""

    def __init__(self, keys: str) -> None:
        self.keys = keys
        self.revocations: list[directory_pb2.Revocation] = []
        self.queue: asyncio.Queue[directory_pb2.WatchRevocationsResponse | None] = asyncio.Queue()
        self.streams = 0
        self.asked: list[tuple[str, str]] = []
        self.release: asyncio.Event | None = None

    async def WatchRevocations(
        self, request: object, context: object
    ) -> AsyncIterator[directory_pb2.WatchRevocationsResponse]:
        self.streams += 1
        yield directory_pb2.WatchRevocationsResponse(snapshot=True, jwks=self.keys, revocations=self.revocations)
        while (message := await self.queue.get()) is not None:
            yield message

    async def GetNamespaceInfo(
        self, request: directory_pb2.GetNamespaceInfoRequest, context: object
    ) -> directory_pb2.GetNamespaceInfoResponse:
        self.asked.append((request.org, request.namespace))
        if self.release is not None:
            await self.release.wait()
        if request.namespace == "gone":
            return directory_pb2.GetNamespaceInfoResponse()
        info = identity_pb2.NamespaceInfo(org=request.org, name=request.namespace, kind="memory", restricted=True)
        return directory_pb2.GetNamespaceInfoResponse(found=True, namespace=info)

    async def ListCallerNamespaces(
        self, request: directory_pb2.ListCallerNamespacesRequest, context: object
    ) -> directory_pb2.ListCallerNamespacesResponse:
        claims = current().claims
        assert claims is not None
        self.asked.append((claims.sub, str(request.limit)))
        infos = [identity_pb2.NamespaceInfo(org=claims.org, name=grant.namespace) for grant in claims.namespaces]
        return directory_pb2.ListCallerNamespacesResponse(namespaces=infos)

    @property
    def service(self) -> Service:
        return Service(
            directory_pb2_grpc.add_DirectoryServiceServicer_to_server, self, "loom.identity.v1.DirectoryService"
        )


@pytest.fixture
def identity(deployment: Deployment) -> IdentityStandIn:
    return IdentityStandIn(jwks([deployment.signing_key.public_jwk()]))


def revocation(claims: Claims) -> directory_pb2.Revocation:
    return directory_pb2.Revocation(kind="token", org="acme", id=claims.jti, revoked_at=claims.iat)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - what is waited for lies behind a socket and sets no event
            await asyncio.sleep(0.005)


async def until_revoked(verifier: TokenVerifier, token: str) -> None:
    async with asyncio.timeout(5):
        while True:
            try:
                verifier.verify(token)
            except TokenRevoked:
                return
            await asyncio.sleep(0.005)


async def test_keys_and_revocations_are_followed(deployment: Deployment, identity: IdentityStandIn) -> None:
    first, second = deployment.claims(), deployment.claims()
    identity.revocations = [revocation(first)]
    async with (
        deployment.serving(identity.service, name="identity") as server,
        deployment.channel(server.address, "memory") as channel,
        IdentityWatch(channel) as watch,
    ):
        assert await watch.wait_ready(5)
        verifier = TokenVerifier(watch, watch, SystemClock())
        with pytest.raises(TokenRevoked):
            verifier.verify(sign_token(first, deployment.signing_key))
        token = sign_token(second, deployment.signing_key)
        assert verifier.verify(token) == second
        identity.queue.put_nowait(directory_pb2.WatchRevocationsResponse(revocations=[revocation(second)]))
        await until_revoked(verifier, token)
        identity.queue.put_nowait(None)


async def test_a_stream_that_ends_is_opened_again_and_its_snapshot_replaces_all(
    deployment: Deployment, identity: IdentityStandIn
) -> None:
    claims = deployment.claims()
    token = sign_token(claims, deployment.signing_key)
    async with (
        deployment.serving(identity.service, name="identity") as server,
        deployment.channel(server.address, "memory") as channel,
        IdentityWatch(channel) as watch,
    ):
        assert await watch.wait_ready(5)
        verifier = TokenVerifier(watch, watch, SystemClock())
        first = verifier.verify(token)
        identity.revocations = [revocation(claims)]
        identity.queue.put_nowait(None)
        await until_revoked(verifier, token)
        identity.revocations = []
        identity.queue.put_nowait(None)
        async with asyncio.timeout(5):
            while True:
                try:
                    assert verifier.verify(token) is first
                    break
                except TokenRevoked:
                    await asyncio.sleep(0.005)
        assert identity.streams == 3
        identity.queue.put_nowait(None)


async def test_a_snapshot_of_several_parts_replaces_all_once_it_is_whole(
    deployment: Deployment, identity: IdentityStandIn
) -> None:
    first, second, late = deployment.claims(), deployment.claims(), deployment.claims()
    identity.revocations = [revocation(first), revocation(second)]
    async with (
        deployment.serving(identity.service, name="identity") as server,
        deployment.channel(server.address, "memory") as channel,
        IdentityWatch(channel) as watch,
    ):
        assert await watch.wait_ready(5)
        verifier = TokenVerifier(watch, watch, SystemClock())
        tokens = [sign_token(claims, deployment.signing_key) for claims in (first, second)]
        identity.queue.put_nowait(
            directory_pb2.WatchRevocationsResponse(snapshot=True, more=True, revocations=[revocation(first)])
        )
        for _ in range(20):
            # The part is on its way or here: neither lets a revoked token pass.
            for token in tokens:
                with pytest.raises(TokenRevoked):
                    verifier.verify(token)
            await asyncio.sleep(0.005)
        identity.queue.put_nowait(
            directory_pb2.WatchRevocationsResponse(revocations=[revocation(second), revocation(late)])
        )
        await until_revoked(verifier, sign_token(late, deployment.signing_key))
        for token in tokens:
            with pytest.raises(TokenRevoked):
                verifier.verify(token)
        identity.queue.put_nowait(None)


async def test_switches_are_followed_whole_and_with_the_age_that_identity_tells(
    deployment: Deployment, identity: IdentityStandIn
) -> None:
    clock = FakeClock()
    async with (
        deployment.serving(identity.service, name="identity") as server,
        deployment.channel(server.address, "memory") as channel,
        IdentityWatch(channel, clock) as watch,
    ):
        assert await watch.wait_ready(5)
        switch = watch.org_switch
        assert switch.age_s() == float("inf")  # the snapshot told of none

        def tell(**fields: object) -> None:
            identity.queue.put_nowait(directory_pb2.WatchRevocationsResponse(**fields))  # type: ignore[arg-type]  # any

        tell(snapshot=True, more=True, model_calls_off=["acme"], model_calls_age_ms=1500)
        tell(model_calls_off=["globex"])
        await until(lambda: switch.off == {"acme", "globex"})
        assert switch.age_s() == 1.5
        tell(model_calls_on=["acme"], model_calls_off=["initech"], model_calls_age_ms=0)
        await until(lambda: switch.off == {"globex", "initech"})
        clock.advance(7)
        tell()
        tell(snapshot=True, model_calls_age_ms=3000)
        await until(lambda: not switch.off)
        assert switch.age_s() == 3
        identity.queue.put_nowait(None)


async def test_callers_are_refused_before_the_first_snapshot_and_once_it_is_stale(
    deployment: Deployment, identity: IdentityStandIn
) -> None:
    clock = FakeClock()
    token = deployment.token()
    async with (
        deployment.serving(identity.service, name="identity") as server,
        deployment.channel(server.address, "memory") as channel,
    ):
        watch = IdentityWatch(channel, clock)
        verifier = TokenVerifier(watch, watch, SystemClock())
        with pytest.raises(BackendUnavailable):
            verifier.verify(token)
        async with watch:
            assert await watch.wait_ready(5)
            verifier.verify(token)
            clock.advance(30)
            verifier.verify(token)
            clock.advance(1)
            assert not watch.ready()
            with pytest.raises(BackendUnavailable) as caught:
                verifier.verify(token)
            assert caught.value.retry_after_s == 1.0
            identity.queue.put_nowait(directory_pb2.WatchRevocationsResponse())
            await until(watch.ready)
            verifier.verify(token)
        identity.queue.put_nowait(None)


async def test_a_loss_shows_after_three_seconds_while_callers_are_still_verified(
    deployment: Deployment, identity: IdentityStandIn
) -> None:
    clock = FakeClock()
    async with deployment.serving(identity.service, name="identity") as server:
        channel = deployment.channel(server.address, "memory")
        watch = IdentityWatch(channel, clock)
        await watch.__aenter__()
        assert await watch.wait_ready(10)
        assert watch.following()
        identity.queue.put_nowait(None)

    def lost() -> bool:
        clock.advance(0.1)
        return not watch.following()

    await until(lost)
    assert watch.ready()
    async with deployment.serving(identity.service, name="identity", listen=server.address):
        await until(watch.following)
        identity.queue.put_nowait(None)
    await watch.__aexit__(None, None, None)
    await channel.close()


async def test_identity_that_comes_later_is_found(deployment: Deployment, identity: IdentityStandIn) -> None:
    async with deployment.serving(identity.service, name="identity") as server:
        address = server.address
    async with deployment.channel(address, "memory") as channel, IdentityWatch(channel) as watch:
        assert not await watch.wait_ready(0.3)
        async with deployment.serving(identity.service, name="identity", listen=address):
            assert await watch.wait_ready(10)
            identity.queue.put_nowait(None)


async def test_a_key_set_that_cannot_be_read_does_not_end_the_watch(
    deployment: Deployment, identity: IdentityStandIn
) -> None:
    good, identity.keys = identity.keys, "not JSON"
    async with (
        deployment.serving(identity.service, name="identity") as server,
        deployment.channel(server.address, "memory") as channel,
        IdentityWatch(channel) as watch,
    ):
        assert not await watch.wait_ready(0.3)
        identity.keys = good
        assert await watch.wait_ready(5)
        identity.queue.put_nowait(None)


async def test_the_directory_asks_once_and_keeps_the_answer_for_five_seconds(
    deployment: Deployment, identity: IdentityStandIn
) -> None:
    clock = FakeClock()
    identity.release = asyncio.Event()
    async with (
        deployment.serving(identity.service, name="identity") as server,
        deployment.channel(server.address, "memory") as channel,
    ):
        directory = GrpcDirectory(channel, clock)
        asked = [asyncio.create_task(directory.namespace_info("acme", "n")) for _ in range(5)]
        async with asyncio.timeout(5):
            await until(lambda: bool(identity.asked))
            # One that leaves takes the answer from nobody.
            asked[0].cancel()
            identity.release.set()
            answers = await asyncio.gather(*asked[1:])
        assert set(answers) == {NamespaceInfo("acme", "n", "memory", restricted=True)}
        assert await directory.namespace_info("acme", "gone") is None
        clock.advance(4)
        await directory.namespace_info("acme", "n")
        assert identity.asked == [("acme", "n"), ("acme", "gone")]
        clock.advance(2)
        await directory.namespace_info("acme", "n")
        assert len(identity.asked) == 3


async def test_the_namespaces_of_callers_are_not_mixed_up(deployment: Deployment, identity: IdentityStandIn) -> None:
    async with (
        deployment.serving(identity.service, name="identity") as server,
        deployment.channel(server.address, "memory") as channel,
    ):
        directory = GrpcDirectory(channel)
        for name in ("default", "team", "default"):
            token = deployment.token(f"{name}:viewer", subject=f"sa:{name}", jti=name, iat=1.0, exp=4e9)
            with bind(Call(token=token)):
                assert [info.name for info in await directory.caller_namespaces()] == [name]
    assert identity.asked == [("sa:default", "64"), ("sa:team", "64")]


async def test_a_directory_that_cannot_be_asked_keeps_no_failure(
    deployment: Deployment, identity: IdentityStandIn
) -> None:
    async with deployment.serving(identity.service, name="identity") as server:
        address = server.address
    async with deployment.channel(address, "memory") as channel:
        directory = GrpcDirectory(channel)
        with pytest.raises(BackendUnavailable):
            await directory.namespace_info("acme", "n")
        async with deployment.serving(identity.service, name="identity", listen=address):
            async with asyncio.timeout(10):
                await channel.channel_ready()
            assert await directory.namespace_info("acme", "n") is not None
