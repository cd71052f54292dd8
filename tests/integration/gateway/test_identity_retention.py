"""How long identity's rows live after what they tell of has ended."""

from datetime import UTC, datetime, timedelta

import pytest

from loom_common.auth.claims import Claims
from loom_common.auth.revocations import Revocation
from loom_common.clickhouse import ClickHouse
from loom_common.migrations import migrate
from loom_gateway.identity.domain.tokens import TokenRecord
from loom_gateway.identity.store.revocations import RevocationRepository
from loom_gateway.identity.store.tokens import TokenRepository


@pytest.mark.parametrize(("ended_days_ago", "kept"), [(-1, True), (0, True), (2, False)])
async def test_a_revocation_goes_once_what_it_ends_has_expired(
    clickhouse: ClickHouse, ended_days_ago: float, kept: bool
) -> None:
    await migrate(clickhouse, "gateway", "loom_gateway")
    repository = RevocationRepository(clickhouse)
    ended = datetime.now(UTC) - timedelta(days=ended_days_ago)
    revocation = Revocation("token", "t1", ended.timestamp() - 60, "acme")
    await repository.add(revocation, revoked_at=ended, expires_at=ended, revoked_by="sa:x")
    await clickhouse.command("OPTIMIZE TABLE revoked_tokens FINAL")
    assert bool(await repository.of("acme", ["t1"])) is kept


@pytest.mark.parametrize(("ended_days_ago", "kept"), [(-1, True), (399, True), (402, False)])
async def test_what_a_token_says_is_kept_as_long_as_the_ledger_names_it(
    clickhouse: ClickHouse, ended_days_ago: float, kept: bool
) -> None:
    await migrate(clickhouse, "gateway", "loom_gateway")
    repository = TokenRepository(clickhouse)
    ended = (datetime.now(UTC) - timedelta(days=ended_days_ago)).timestamp()
    claims = Claims(sub="sa:x", org="acme", namespaces=(), jti="t1", iat=ended - 60, exp=ended)
    await repository.add(TokenRecord(claims, "", "sa:x"))
    await clickhouse.command("OPTIMIZE TABLE tokens FINAL")
    assert (await repository.find("acme", "t1") is not None) is kept
