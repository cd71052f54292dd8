"""Keys and revocations between replicas and services, over real servers and the real engine."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr
from support.identity import SECRET, RunningIdentity, bearer, running_identity, token_request

from loom.identity.v1 import access_pb2, access_pb2_grpc, directory_pb2, identity_pb2
from loom_common.auth.revocations import Revocation
from loom_common.auth.verifier import TokenVerifier
from loom_common.auth.watch import IdentityWatch
from loom_common.clickhouse import ClickHouse, Rows
from loom_common.clickhouse.protocol import Parameters, Settings
from loom_common.clock import Clock, FakeClock, SystemClock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.errors import BackendUnavailable, TokenRevoked
from loom_common.migrations import migrate
from loom_common.sealing import Sealer
from loom_common.settings import SettingsError
from loom_gateway.identity.app.model_calls import SwitchBoard
from loom_gateway.identity.app.revocations import RevocationFeed
from loom_gateway.identity.app.signing import SEAL_PURPOSE, SigningKeys
from loom_gateway.identity.service import open_identity
from loom_gateway.identity.store.model_calls import ModelCallsRepository
from loom_gateway.identity.store.revocations import RevocationRepository
from loom_gateway.identity.store.signing_keys import SigningKeyRepository

OTHER_SECRET = SecretStr("another secret of this test, long enough")


async def until(holds: Callable[[], bool], within_s: float) -> None:
    """Returns once `holds` does; fails when that takes longer than `within_s`."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


def is_revoked(verifier: TokenVerifier, token: str) -> bool:
    try:
        verifier.verify(token)
    except TokenRevoked:
        return True
    return False


async def issued(identity: RunningIdentity) -> tuple[str, str]:
    """Returns a new token and its identifier."""
    await identity.namespace("a")
    token = await identity.token("a:writer")
    return token, identity.identity.verifier.verify(token).jti


async def end(identity: RunningIdentity, token_id: str) -> None:
    await identity.operator.RevokeToken(identity_pb2.RevokeTokenRequest(org="acme", token_id=token_id))


async def test_another_service_reads_keys_and_hears_of_an_ended_token_within_two_seconds(
    clickhouse: ClickHouse, tmp_path: Path
) -> None:
    async with running_identity(clickhouse, tmp_path) as identity:
        token, token_id = await issued(identity)
        async with IdentityWatch(identity.channel("memory")) as watch:
            assert await watch.wait_ready(10)
            verifier = TokenVerifier(watch, watch, SystemClock())
            assert verifier.verify(token).jti == token_id

            await end(identity, token_id)
            await until(lambda: is_revoked(verifier, token), within_s=2)


async def test_another_service_hears_of_an_ended_subject_and_session_within_two_seconds(
    clickhouse: ClickHouse, tmp_path: Path
) -> None:
    async with running_identity(clickhouse, tmp_path) as identity:
        token, _ = await issued(identity)
        sessions = identity.identity.sessions
        access = access_pb2_grpc.AccessServiceStub(identity.channel("operator"))
        await access.SetGrant(
            access_pb2.SetGrantRequest(org="acme", subject="ann@acme.org", on_namespace="a", role="admin")
        )
        session = (await sessions.begin("acme", "ann@acme.org", "link")).session
        in_session = await sessions.token(session)
        wish = token_request("a:viewer", ttl_s=86_400)
        child = (await identity.outside.CreateToken(wish, metadata=bearer(in_session))).token
        async with IdentityWatch(identity.channel("memory")) as watch:
            assert await watch.wait_ready(10)
            verifier = TokenVerifier(watch, watch, SystemClock())
            assert [verifier.verify(held).sub for held in (token, in_session, child)] == [
                "sa:bot",
                "ann@acme.org",
                "ann@acme.org",
            ]

            await identity.operator.RevokeToken(identity_pb2.RevokeTokenRequest(org="acme", subject="sa:bot"))
            await until(lambda: is_revoked(verifier, token), within_s=2)
            # A person ends its own session, and with it what was made there, however long that lives.
            end_it = identity_pb2.RevokeTokenRequest(session=session.sid)
            await identity.outside.RevokeToken(end_it, metadata=bearer(in_session))
            await until(lambda: is_revoked(verifier, in_session) and is_revoked(verifier, child), within_s=2)


async def test_a_service_that_connects_later_knows_what_was_ended_before(
    clickhouse: ClickHouse, tmp_path: Path
) -> None:
    async with running_identity(clickhouse, tmp_path) as identity:
        token, token_id = await issued(identity)
        await end(identity, token_id)
        async with IdentityWatch(identity.channel("memory")) as watch:
            assert await watch.wait_ready(10)
            assert is_revoked(TokenVerifier(watch, watch, SystemClock()), token)


async def test_replicas_share_one_key_and_hear_of_each_others_revocations_within_two_seconds(
    any_clickhouse: ClickHouse, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(running_identity(any_clickhouse, tmp_path / "keys"))
        two = await stack.enter_async_context(running_identity(any_clickhouse, tmp_path / "keys"))
        token, token_id = await issued(one)
        assert two.identity.verifier.verify(token).jti == token_id

        await end(one, token_id)
        await until(lambda: is_revoked(two.identity.verifier, token), within_s=2)
        assert is_revoked(one.identity.verifier, token)


async def test_a_restart_knows_the_key_and_what_was_ended(clickhouse: ClickHouse, tmp_path: Path) -> None:
    async with running_identity(clickhouse, tmp_path) as identity:
        kept = await identity.token("*:writer")
        ended, token_id = await issued(identity)
        await end(identity, token_id)

    async with running_identity(clickhouse, tmp_path) as again:
        assert again.identity.verifier.verify(kept).sub == "sa:bot"
        assert is_revoked(again.identity.verifier, ended)


async def test_gateways_that_start_together_make_one_key(clickhouse: ClickHouse) -> None:
    await migrate(clickhouse, "gateway", "loom_gateway")

    async def start() -> None:
        async with open_identity(clickhouse, SECRET, None, SystemClock()):
            pass

    await asyncio.gather(*(start() for _ in range(4)))
    keys = await SigningKeyRepository(clickhouse).of_kind("token")

    assert len(keys) == 1
    assert SECRET.get_secret_value() not in keys[0].sealed_private


async def test_another_secret_stops_the_start_with_one_line_that_shows_neither(clickhouse: ClickHouse) -> None:
    await migrate(clickhouse, "gateway", "loom_gateway")
    async with open_identity(clickhouse, SECRET, None, SystemClock()):
        pass

    with pytest.raises(SettingsError) as refused:
        async with open_identity(clickhouse, OTHER_SECRET, None, SystemClock()):
            pytest.fail("it must not start")
    line = str(refused.value)
    assert "LOOM_JWT_SECRET" in line
    assert "\n" not in line
    assert OTHER_SECRET.get_secret_value() not in line


async def test_the_secret_before_opens_the_keys_during_a_rotation(clickhouse: ClickHouse) -> None:
    await migrate(clickhouse, "gateway", "loom_gateway")
    for secret, previous in ((SECRET, None), (OTHER_SECRET, SECRET)):
        async with open_identity(clickhouse, secret, previous, SystemClock()):
            pass

    assert len(await SigningKeyRepository(clickhouse).of_kind("token")) == 1


async def test_the_stream_begins_with_a_snapshot_tells_changes_at_once_and_beats_when_there_are_none(
    clickhouse: ClickHouse, tmp_path: Path
) -> None:
    async with running_identity(clickhouse, tmp_path) as identity:
        _, first_id = await issued(identity)
        _, second_id = await issued(identity)
        await end(identity, first_id)
        call = identity.directory().WatchRevocations(directory_pb2.WatchRevocationsRequest())
        messages = aiter(call)
        async with asyncio.timeout(10):
            snapshot = await anext(messages)
            await end(identity, second_id)
            change = await anext(messages)
            beat = await anext(messages)
        call.cancel()

    assert snapshot.snapshot
    assert '"keys"' in snapshot.jwks
    assert [(each.kind, each.org, each.id) for each in snapshot.revocations] == [("token", "acme", first_id)]
    assert not change.snapshot
    assert [each.id for each in change.revocations] == [second_id]
    assert (beat.snapshot, beat.jwks, list(beat.revocations)) == (False, "", [])


class CutOff:
    """A ClickHouse that can be cut off; only what repositories use."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self.cut = False
        self.table = ""
        """Table that alone is cut off; empty for all."""
        self.refused = asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._ch, name)

    async def query(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        settings: Settings | None = None,
        timeout_s: float | None = None,
    ) -> Rows:
        if self.cut and self.table in sql:
            self.refused.set()
            raise BackendUnavailable("The database cannot be reached.")
        return await self._ch.query(sql, parameters, settings=settings, timeout_s=timeout_s)


@asynccontextmanager
async def running_feed(ch: ClickHouse, clock: Clock, refresh_s: float = 2.0) -> AsyncIterator[RevocationFeed]:
    await migrate(ch, "gateway", "loom_gateway")
    sealer = Sealer(SECRET, purpose=SEAL_PURPOSE)
    keys = SigningKeys(SigningKeyRepository(ch), sealer, ConditionalWrites(ch, "identity"), clock)
    await keys.open()
    switches = SwitchBoard(ModelCallsRepository(ch), clock, refresh_s)
    async with RevocationFeed(RevocationRepository(ch), keys, switches, clock) as feed:
        yield feed


async def test_followers_hear_nothing_while_the_database_cannot_be_read(clickhouse: ClickHouse) -> None:
    cut_off = CutOff(clickhouse)
    async with running_feed(cut_off, SystemClock()) as feed, aclosing(feed.follow()) as updates:  # type: ignore[arg-type]  # stands in for one
        assert (await anext(updates)).snapshot
        cut_off.cut = True
        await cut_off.refused.wait()
        cut_off.refused.clear()
        heard = asyncio.create_task(anext(updates))
        # One beat may have been earned by a read before the cut.
        await asyncio.wait({heard}, timeout=3)
        if heard.done():
            heard = asyncio.create_task(anext(updates))
        done, _ = await asyncio.wait({heard}, timeout=3)
        assert not done

        cut_off.cut = False
        async with asyncio.timeout(5):
            assert not (await heard).snapshot


async def test_switches_that_cannot_be_read_grow_old_and_revocations_go_on(clickhouse: ClickHouse) -> None:
    cut_off = CutOff(clickhouse)
    cut_off.table = "org_model_calls"
    feed_of = running_feed(cut_off, SystemClock(), refresh_s=0.1)  # type: ignore[arg-type]  # stands in for one
    async with feed_of as feed, aclosing(feed.follow()) as updates:
        told = await anext(updates)
        assert told.calls_age_s is not None
        cut_off.cut = True
        async with asyncio.timeout(5):
            await cut_off.refused.wait()
        revocation = Revocation("token", "t", 1.0, "acme")
        await feed.add(revocation, expires_at=datetime.now(UTC) + timedelta(hours=1), revoked_by="ada")
        change = await anext(updates)
        assert change.revocations == (revocation,)
        assert change.calls_age_s is not None
        assert change.calls_age_s >= 0.1


async def test_callers_are_refused_when_the_database_was_not_read_for_thirty_seconds(clickhouse: ClickHouse) -> None:
    clock = FakeClock()
    cut_off = CutOff(clickhouse)
    async with running_feed(cut_off, clock) as feed:  # type: ignore[arg-type]  # stands in for one
        cut_off.cut = True
        clock.advance(30)
        feed.verification_key("unknown")
        clock.advance(1)
        assert not feed.fresh()
        with pytest.raises(BackendUnavailable):
            feed.verification_key("unknown")

        cut_off.cut = False
        await until(feed.fresh, within_s=5)


async def test_expired_revocations_are_dropped(clickhouse: ClickHouse) -> None:
    # Now, and not a fixed day: the engine removes rows by its own clock.
    clock = FakeClock(datetime.now(UTC).replace(microsecond=0))
    async with running_feed(clickhouse, clock) as feed:
        for name, left_s in (("short", 60), ("long", 3600)):
            revocation = Revocation("token", name, clock.now().timestamp(), "acme")
            await feed.add(revocation, expires_at=clock.now() + timedelta(seconds=left_s), revoked_by="ada")
        clock.advance(61)
        async with aclosing(feed.follow()) as updates:
            await until(lambda: len(feed) == 1, within_s=5)
            snapshot = await anext(updates)

    assert [each.id for each in snapshot.revocations] == ["long"]


async def test_closing_ends_every_stream(clickhouse: ClickHouse) -> None:
    async with running_feed(clickhouse, SystemClock()) as feed, aclosing(feed.follow()) as updates:
        await anext(updates)
        waiting = asyncio.create_task(anext(updates, None))
        feed.close()
        async with asyncio.timeout(5):
            assert await waiting is None
