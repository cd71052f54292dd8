"""Keys that are replaced and secrets that are sealed anew, over real servers and the real engine."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr
from support.identity import SECRET, RunningIdentity, running_identity

from loom.identity.v1 import secrets_pb2, secrets_pb2_grpc
from loom_common.auth.tokens import parse_jwks
from loom_common.clickhouse import ClickHouse
from loom_common.clock import FakeClock
from loom_common.errors import AuthInsufficient, Unauthenticated
from loom_common.resealing import Reseal, SealedKind, SealedRow
from loom_common.sealing import Sealer
from loom_common.settings import SettingsError

NEW_SECRET = SecretStr("the secret of after the rotation, long")


def secrets(identity: RunningIdentity, service: str = "operator") -> "secrets_pb2_grpc.SecretsServiceAsyncStub":
    return secrets_pb2_grpc.SecretsServiceStub(identity.channel(service))


async def reseal(identity: RunningIdentity) -> tuple[int, int, int]:
    [done] = (await secrets(identity).Reseal(secrets_pb2.ResealRequest())).kinds
    assert done.kind == "signing_keys"
    return done.resealed_count, done.current_count, done.unopened_count


async def test_a_secret_is_replaced_and_the_old_one_can_go_once_everything_is_sealed_anew(
    clickhouse: ClickHouse, tmp_path: Path
) -> None:
    async with running_identity(clickhouse, tmp_path) as before:
        await before.namespace("a")
        token = await before.token("a:viewer")
        assert await reseal(before) == (0, 2, 0)  # a key, and the record that proves the secret
        with pytest.raises(AuthInsufficient):
            await secrets(before, "memory").Reseal(secrets_pb2.ResealRequest())
    with pytest.raises(SettingsError, match="LOOM_JWT_SECRET_PREVIOUS"):
        async with running_identity(clickhouse, tmp_path, secret=NEW_SECRET):
            pytest.fail("it must not start")
    async with running_identity(clickhouse, tmp_path, secret=NEW_SECRET, previous_secret=SECRET) as during:
        assert during.identity.verifier.verify(token)
        assert await reseal(during) == (2, 0, 0)
        assert await reseal(during) == (0, 2, 0)
    async with running_identity(clickhouse, tmp_path, secret=NEW_SECRET) as after:
        assert after.identity.verifier.verify(token)


async def test_a_new_key_signs_once_it_is_known_and_older_ones_verify_until_they_are_thrown_away(
    clickhouse: ClickHouse, tmp_path: Path
) -> None:
    async with running_identity(clickhouse, tmp_path) as identity:
        await identity.namespace("a")
        first = await identity.token("a:viewer")
        verify = identity.identity.verifier.verify
        made = await secrets(identity).RotateSigningKey(secrets_pb2.RotateSigningKeyRequest())
        second = await identity.token("a:viewer")  # still by the old key: nobody else knows the new one yet
        keys = parse_jwks(identity.identity.feed._keys.jwks)
        assert made.key_id in keys
        assert len(keys) == 2
        assert [verify(token).sub for token in (first, second)] == ["sa:bot", "sa:bot"]

        leaked = await secrets(identity).RotateSigningKey(secrets_pb2.RotateSigningKeyRequest(end_all_tokens=True))
        for token in (first, second):
            with pytest.raises(Unauthenticated):
                verify(token)
        third = await identity.token("a:viewer")
        assert verify(third).sub == "sa:bot"
        assert list(parse_jwks(identity.identity.feed._keys.jwks)) == [leaked.key_id]


async def test_a_key_is_replaced_when_it_is_old_and_forgotten_when_nothing_that_it_signed_is_good(
    clickhouse: ClickHouse, tmp_path: Path
) -> None:
    clock = FakeClock()
    async with running_identity(clickhouse, tmp_path, clock=clock, key_replaced_after=timedelta(days=90)) as identity:
        keys = identity.identity.feed._keys
        turn: Callable[[], Awaitable[None]] = keys.replace_old
        first = keys.active.kid
        await turn()
        assert keys.active.kid == first
        clock.advance(91 * 86_400)
        await turn()
        await turn()
        assert keys.active.kid == first
        assert len(parse_jwks(keys.jwks)) == 2
        clock.advance(61)
        second = keys.active.kid
        assert second != first
        clock.advance(367 * 86_400)
        await keys.refresh()
        assert list(parse_jwks(keys.jwks)) == [second]


class Rows:
    """Sealed rows of a service, one of which goes while it is looked at."""

    def __init__(self, *rows: SealedRow, gone: str) -> None:
        self.rows = list(rows)
        self.gone = gone
        self.put: dict[str, str] = {}

    async def sealed_rows(self) -> list[SealedRow]:
        return self.rows

    async def put_resealed(self, row: SealedRow, sealed: str) -> bool:
        if row.name == self.gone:
            return False
        self.put[row.name] = sealed
        return True


async def test_what_another_registers_is_sealed_anew_under_its_own_hold_and_a_gone_row_is_passed_over() -> None:
    from contextlib import asynccontextmanager

    held = []

    @asynccontextmanager
    async def lease():  # type: ignore[no-untyped-def]
        held.append("taken")
        yield
        held.append("given back")

    old, both = Sealer(SECRET, purpose="p"), Sealer(NEW_SECRET, SECRET, purpose="p")
    stray = Sealer(SecretStr("x" * 40), purpose="p")
    rows = Rows(
        SealedRow("a", old.seal(b"1", name="a"), 1),
        SealedRow("b", old.seal(b"2", name="b"), 1),
        SealedRow("c", both.seal(b"3", name="c"), 1),
        SealedRow("d", stray.seal(b"4", name="d"), 1),
        gone="b",
    )
    registry = Reseal()
    registry.register(SealedKind("rows", rows, both, lease))
    [done] = await registry.run()

    assert held == ["taken", "given back"]
    assert (done.resealed, done.current, done.unopened) == (1, 1, 1)
    assert Sealer(NEW_SECRET, purpose="p").open(rows.put["a"], name="a") == b"1"
