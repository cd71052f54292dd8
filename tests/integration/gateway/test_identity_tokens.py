"""Tokens over a real server and the real engine: made, listed, ended."""

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.identity import SECRET, RunningIdentity, bearer, running_identity, token_request

from loom.identity.v1 import identity_pb2
from loom_common.auth.revocations import Revocation
from loom_common.clickhouse import ClickHouse
from loom_common.errors import (
    AuthInsufficient,
    Conflict,
    InvalidArgument,
    LoomError,
    NotFound,
    TokenRevoked,
    Unauthenticated,
)
from loom_gateway.identity.store.namespaces import NamespaceRepository
from loom_gateway.identity.store.revocations import RevocationRepository


@pytest.fixture
async def identity(any_clickhouse: ClickHouse, tmp_path: Path) -> AsyncIterator[RunningIdentity]:
    async with running_identity(any_clickhouse, tmp_path / "keys") as running:
        yield running


async def listed(identity: RunningIdentity, token: str, **more: object) -> list[identity_pb2.TokenInfo]:
    request = identity_pb2.ListTokensRequest(**more)  # type: ignore[arg-type]  # any field
    return list((await identity.outside.ListTokens(request, metadata=bearer(token))).tokens)


async def test_the_operators_credential_alone_makes_a_namespace_makes_a_token_and_ends_it(
    identity: RunningIdentity,
) -> None:
    made = await identity.operator.CreateNamespace(identity_pb2.CreateNamespaceRequest(org="default", name="default"))
    issued = await identity.operator.CreateToken(
        token_request("default:writer", org="default", subject="sa:start", ttl_s=60)
    )
    claims = identity.identity.verifier.verify(issued.token)

    assert made.created
    assert (claims.org, claims.sub, claims.default_namespace) == ("default", "sa:start", "default")
    assert claims.exp - claims.iat == pytest.approx(60, abs=0.01)

    await identity.operator.RevokeToken(identity_pb2.RevokeTokenRequest(org="default", token_id=issued.token_id))
    with pytest.raises(TokenRevoked):
        identity.identity.verifier.verify(issued.token)


async def test_no_other_service_makes_a_token_with_its_own_credential(identity: RunningIdentity) -> None:
    await identity.namespace("a")
    stub = type(identity.operator)(identity.channel("memory"))

    with pytest.raises(AuthInsufficient):
        await stub.CreateToken(token_request("a:viewer", org="acme", subject="sa:x"))


async def test_a_call_without_any_credential_is_refused(identity: RunningIdentity) -> None:
    with pytest.raises(Unauthenticated):
        await identity.outside.CreateToken(token_request("a:viewer"))


async def test_a_token_made_from_another_is_no_wider_and_ends_with_it(identity: RunningIdentity) -> None:
    await identity.namespace("a")
    parent = await identity.token("a:writer", ttl_s=60)
    made = await identity.outside.CreateToken(token_request("a:viewer"), metadata=bearer(parent))
    grandchild = await identity.outside.CreateToken(token_request("a:viewer"), metadata=bearer(made.token))
    verify = identity.identity.verifier.verify

    assert verify(grandchild.token).exp == verify(parent).exp
    await identity.outside.RevokeToken(
        identity_pb2.RevokeTokenRequest(token_id=verify(parent).jti), metadata=bearer(parent)
    )
    for token in (parent, made.token, grandchild.token):
        with pytest.raises(TokenRevoked):
            verify(token)


async def test_a_token_asked_for_again_under_its_key_is_the_same_token(
    identity: RunningIdentity, any_clickhouse: ClickHouse
) -> None:
    await identity.namespace("a")
    parents = [await identity.token("a:writer"), await identity.token("a:writer")]

    async def make(parent: str, key: str, **more: object) -> identity_pb2.CreateTokenResponse:
        return await identity.outside.CreateToken(
            token_request("a:viewer", **more), metadata=(*bearer(parent), ("idempotency-key", key))
        )

    first = await make(parents[0], "once")
    assert await make(parents[0], "once") == first
    assert len({(await make(parent, key)).token_id for parent in parents for key in ("once", "twice")}) == 4
    with pytest.raises(Conflict):
        await make(parents[0], "once", label="another")
    kept = await any_clickhouse.query("SELECT * FROM idempotency_keys")
    assert first.token not in str(list(kept.dicts()))


@pytest.mark.parametrize("name", ["b", "never-made"])
async def test_what_is_not_the_callers_is_refused_whether_or_not_it_exists(
    identity: RunningIdentity, name: str
) -> None:
    await identity.namespace("a")
    await identity.namespace("b")
    parent = await identity.token("a:admin")

    with pytest.raises(AuthInsufficient):
        await identity.outside.CreateToken(token_request(f"{name}:viewer"), metadata=bearer(parent))


async def test_a_namespace_that_does_not_exist_gets_no_token(identity: RunningIdentity) -> None:
    wide = await identity.token("*:writer")

    with pytest.raises(NotFound):
        await identity.outside.CreateToken(token_request("never-made:viewer"), metadata=bearer(wide))
    with pytest.raises(NotFound):
        await identity.operator.CreateToken(token_request("never-made:viewer", org="acme", subject="sa:x"))


async def test_an_org_wide_token_passes_no_restricted_namespace_on(identity: RunningIdentity) -> None:
    await identity.namespace("secret", restricted=True)
    admin = await identity.token("*:admin", org_admin=True)

    with pytest.raises(NotFound):
        await identity.outside.CreateToken(token_request("secret:viewer"), metadata=bearer(admin))
    named = await identity.token("secret:writer")
    await identity.outside.CreateToken(token_request("secret:viewer"), metadata=bearer(named))


async def test_of_more_names_than_an_address_holds_each_is_looked_for(
    identity: RunningIdentity, any_clickhouse: ClickHouse
) -> None:
    names = [f"{number:05}-{'x' * 120}" for number in range(9_000)]  # more than a mebibyte
    for name in (names[0], names[-1]):
        await identity.namespace(name)
    assert sorted(await NamespaceRepository(any_clickhouse).named("acme", names)) == [names[0], names[-1]]
    ended = Revocation("token", names[-1], 1.0, "acme")
    await identity.identity.feed.add(ended, expires_at=datetime.now(UTC) + timedelta(days=1), revoked_by="sa:test")
    assert await RevocationRepository(any_clickhouse).of("acme", names) == [ended]


async def test_a_token_of_another_organisation_is_refused(identity: RunningIdentity) -> None:
    await identity.namespace("a")
    token = await identity.token("a:admin", org_admin=True)

    with pytest.raises(AuthInsufficient):
        await identity.outside.CreateToken(token_request("a:viewer", org="other"), metadata=bearer(token))


@pytest.mark.parametrize(
    "request_",
    [
        token_request("a:viewer", read_scope="own_user"),
        token_request("a:viewer", user_id="line\nbreak"),
        token_request("a:viewer", "a:viewer"),
        token_request("a:owner"),
        token_request("a:viewer", ttl_s=0),
        token_request(),
    ],
    ids=["no-user", "control-character", "named-twice", "unknown-role", "no-life", "no-namespace"],
)
async def test_a_token_that_no_service_would_read_is_not_made(
    identity: RunningIdentity, request_: identity_pb2.CreateTokenRequest
) -> None:
    await identity.namespace("a")
    token = await identity.token("a:admin")

    with pytest.raises(InvalidArgument):
        await identity.outside.CreateToken(request_, metadata=bearer(token))


async def test_a_narrowed_token_makes_none(identity: RunningIdentity) -> None:
    await identity.namespace("a")
    narrow = await identity.token("a:writer", read_scope="own_user", user_id="u1")

    with pytest.raises(AuthInsufficient) as refused:
        await identity.outside.CreateToken(token_request("a:viewer"), metadata=bearer(narrow))
    assert refused.value.detail["reason"] == "narrowed"


async def test_a_caller_sees_what_it_may_end_and_nothing_else(identity: RunningIdentity) -> None:
    await identity.namespace("a")
    own = await identity.token("a:writer", subject="sa:one", label="first")
    other = await identity.token("a:writer", subject="sa:two", label="second")
    await identity.outside.CreateToken(token_request("a:viewer", label="child"), metadata=bearer(own))
    admin = await identity.token("*:admin", subject="ada@example.org", org_admin=True, label="third")

    assert [each.label for each in await listed(identity, own)] == ["child", "first"]
    assert [each.label for each in await listed(identity, other)] == ["second"]
    assert [each.label for each in await listed(identity, admin)] == ["third", "child", "second", "first"]


async def test_pages_of_tokens_have_no_gap_and_no_repeat(identity: RunningIdentity) -> None:
    await identity.namespace("a")
    token = await identity.token("a:writer", label="0")
    for number in range(1, 5):
        await identity.token("a:writer", label=str(number))
    seen: list[str] = []
    page_token = ""
    while True:
        request = identity_pb2.ListTokensRequest(page_size=2, page_token=page_token)
        page = await identity.outside.ListTokens(request, metadata=bearer(token))
        seen += [each.label for each in page.tokens]
        page_token = page.next_page_token
        if not page_token:
            break

    assert seen == ["4", "3", "2", "1", "0"]


async def test_ended_tokens_are_listed_on_demand_with_what_ended_them(identity: RunningIdentity) -> None:
    await identity.namespace("a")
    keeper = await identity.token("a:writer", label="keeper")
    parent = await identity.token("a:writer", label="parent")
    await identity.outside.CreateToken(token_request("a:viewer", label="child"), metadata=bearer(parent))
    token_id = identity.identity.verifier.verify(parent).jti
    ended = await identity.outside.RevokeToken(
        identity_pb2.RevokeTokenRequest(token_id=token_id), metadata=bearer(keeper)
    )

    assert [each.label for each in await listed(identity, keeper)] == ["keeper"]
    everything = await listed(identity, keeper, include_ended=True)
    assert [(each.label, each.revoked_at) for each in everything] == [
        ("child", ended.revoked_at),
        ("parent", ended.revoked_at),
        ("keeper", ""),
    ]


async def test_a_stranger_ends_no_token_and_learns_nothing_of_it(identity: RunningIdentity) -> None:
    await identity.namespace("a")
    token_id = identity.identity.verifier.verify(await identity.token("a:writer", subject="sa:one")).jti
    stranger = await identity.token("a:admin", subject="sa:two")

    for asked in (token_id, "never-made"):
        with pytest.raises(NotFound):
            await identity.outside.RevokeToken(
                identity_pb2.RevokeTokenRequest(token_id=asked), metadata=bearer(stranger)
            )


async def test_ending_a_token_twice_answers_the_first_time(identity: RunningIdentity) -> None:
    await identity.namespace("a")
    issued = await identity.operator.CreateToken(token_request("a:writer", org="acme", subject="sa:one"))
    request = identity_pb2.RevokeTokenRequest(org="acme", token_id=issued.token_id)
    first = await identity.operator.RevokeToken(request)

    assert await identity.operator.RevokeToken(request) == first


async def test_neither_tables_nor_logs_nor_errors_hold_a_token_or_the_secret(
    identity: RunningIdentity, any_clickhouse: ClickHouse, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await identity.namespace("a")
    token = await identity.token("a:writer")
    with pytest.raises(LoomError) as refused:
        await identity.outside.CreateToken(token_request("b:viewer"), metadata=bearer(token))
    signature = token.rpartition(".")[2]
    private = identity.identity.feed  # what holds the keys must not show them either
    shown = [caplog.text, str(refused.value), repr(refused.value.detail), repr(private), repr(identity.identity)]
    for table in ("signing_keys", "tokens", "namespaces", "revoked_tokens"):
        rows = await any_clickhouse.query(f"SELECT * FROM {table} ORDER BY ALL LIMIT 100")
        shown.append(str(rows.rows))

    for text in shown:
        assert signature not in text
        assert SECRET.get_secret_value() not in text
        assert '"d":' not in text
