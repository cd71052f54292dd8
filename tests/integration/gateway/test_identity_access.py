"""Grants, organisations, accounts and what tokens may say under them, over a real server and the real engine."""

import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from starlette.requests import Request
from support.clickhouse import MeanwhileClickHouse
from support.identity import OrgIdentity, RunningIdentity, bearer, running_identity, token_request

from loom.identity.v1 import access_pb2, directory_pb2, identity_pb2
from loom_common.auth.claims import Claims, Role
from loom_common.auth.directory import GrpcDirectory
from loom_common.clickhouse import ClickHouseSettings
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.errors import (
    AuthInsufficient,
    Conflict,
    InvalidArgument,
    LoomError,
    NotFound,
    TokenRevoked,
    Unauthenticated,
)
from loom_common.model_calls.reads import DirectoryReads
from loom_common.write_policy import Treatment, WritePolicy
from loom_gateway.oauth.people import Person
from loom_gateway.signin.people import SignedInPeople

pytestmark = pytest.mark.asyncio(loop_scope="module")

_ORGS = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def database(clickhouse_engine: EmbeddedEngine) -> AsyncIterator[MeanwhileClickHouse]:
    ch = MeanwhileClickHouse(clickhouse_engine, "identity_access", ClickHouseSettings(pool_size=4))
    await ch.start()
    yield ch
    await ch.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    database: MeanwhileClickHouse, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningIdentity]:
    async with running_identity(database, tmp_path_factory.mktemp("identity") / "keys") as running:
        yield running


@pytest.fixture
def identity(running: RunningIdentity) -> OrgIdentity:
    return OrgIdentity(running, f"acme{next(_ORGS)}")


async def grant(identity: OrgIdentity, subject: str, namespace: str, role: str) -> access_pb2.SetGrantResponse:
    request = access_pb2.SetGrantRequest(org=identity.org, subject=subject, on_namespace=namespace, role=role)
    return await identity.access("operator").SetGrant(request)


async def take(identity: OrgIdentity, subject: str, namespace: str) -> access_pb2.RemoveGrantResponse:
    request = access_pb2.RemoveGrantRequest(org=identity.org, subject=subject, on_namespace=namespace)
    return await identity.access("operator").RemoveGrant(request)


def verified(identity: OrgIdentity, token: str) -> Claims:
    return identity.identity.verifier.verify(token)


async def outcome(identity: OrgIdentity, token: str) -> type[Exception] | None:
    try:
        verified(identity, token)
    except LoomError as error:
        return type(error)
    return None


async def test_a_subject_without_grants_gets_what_its_maker_decides_and_one_with_grants_no_more_than_those(
    identity: OrgIdentity,
) -> None:
    for name in ("a", "b"):
        await identity.namespace(name)
    before = await identity.token("a:admin", "b:writer")
    made = await grant(identity, "sa:bot", "a", "writer")
    assert (made.changed, made.ended_tokens, made.grant.role) == (True, 0, "writer")

    assert await outcome(identity, before) is None  # a first grant ends nothing
    assert [g.namespace for g in verified(identity, await identity.token("a:writer")).namespaces] == ["a"]
    for beyond in ("a:admin", "b:viewer", "*:viewer"):
        with pytest.raises(AuthInsufficient) as refused:
            await identity.token(beyond)
        assert refused.value.detail["reason"] == "not_granted"
    with pytest.raises(AuthInsufficient):
        await identity.token("a:viewer", org_admin=True)
    # What the old token could pass on, it passes on only within its subject's grants.
    with pytest.raises(AuthInsufficient):
        await identity.outside.CreateToken(token_request("b:viewer"), metadata=bearer(before))


async def test_a_smaller_grant_ends_the_tokens_that_say_more_and_their_children_and_no_other(
    identity: OrgIdentity,
) -> None:
    for name in ("a", "b"):
        await identity.namespace(name)
        await grant(identity, "sa:bot", name, "admin")
    wide = await identity.token("a:writer", "b:viewer")
    child = (await identity.outside.CreateToken(token_request("b:viewer"), metadata=bearer(wide))).token
    answer = await identity.directory().Delegate(
        directory_pb2.DelegateRequest(namespace="b", role="viewer", ttl_s=60), metadata=bearer(wide)
    )
    reader, other = await identity.token("a:viewer"), await identity.token("a:writer", subject="sa:other")

    done = await grant(identity, "sa:bot", "a", "viewer")
    again = await grant(identity, "sa:bot", "a", "viewer")

    assert (done.changed, done.ended_tokens, again.changed, again.ended_tokens) == (True, 1, False, 0)
    for token in (wide, child, answer.token):
        assert await outcome(identity, token) is TokenRevoked
    for token in (reader, other):
        assert await outcome(identity, token) is None


async def test_a_subject_whose_last_grant_was_taken_away_holds_nothing_until_it_is_given_something(
    identity: OrgIdentity,
) -> None:
    await identity.namespace("a")
    await grant(identity, "ann@acme.org", "*", "org_admin")
    admin = await identity.token("*:admin", subject="ann@acme.org", org_admin=True)
    done, again = await take(identity, "ann@acme.org", "*"), await take(identity, "ann@acme.org", "*")

    assert (done.removed, done.ended_tokens, again.removed, again.ended_tokens) == (True, 1, False, 0)
    assert await outcome(identity, admin) is TokenRevoked
    with pytest.raises(AuthInsufficient):
        await identity.token("a:viewer", subject="ann@acme.org")
    await grant(identity, "ann@acme.org", "a", "viewer")
    assert await outcome(identity, await identity.token("a:viewer", subject="ann@acme.org")) is None


async def test_a_role_that_is_taken_while_a_sessions_token_is_made_is_in_none_that_holds(
    identity: OrgIdentity, database: MeanwhileClickHouse
) -> None:
    for name in ("a", "b"):
        await identity.namespace(name)
        await grant(identity, "ann@acme.org", name, "writer")
    sessions = identity.identity.sessions
    session = (await sessions.begin(identity.org, "ann@acme.org", "link")).session
    database.after_reading("grants", lambda: take(identity, "ann@acme.org", "a"))

    said_too_much, next_one = await sessions.token(session), await sessions.token(session)
    assert await outcome(identity, said_too_much) is TokenRevoked
    assert [held.namespace for held in verified(identity, next_one).namespaces] == ["b"]


async def test_only_an_administrator_of_the_namespace_grants_on_it_and_restricted_ones_take_one_of_their_own(
    identity: OrgIdentity,
) -> None:
    await identity.namespace("open")
    await identity.namespace("shut", restricted=True)
    org_admin = bearer(await identity.token("*:admin", subject="sa:root", org_admin=True))
    keeper = bearer(await identity.token("shut:admin", subject="sa:keeper"))
    writer = bearer(await identity.token("open:writer", "shut:writer", subject="sa:writer"))
    stub = identity.access()

    def wish(namespace: str, role: str = "viewer", subject: str = "sa:new") -> access_pb2.SetGrantRequest:
        return access_pb2.SetGrantRequest(subject=subject, on_namespace=namespace, role=role)

    await stub.SetGrant(wish("open"), metadata=org_admin)
    await stub.SetGrant(wish("shut"), metadata=keeper)
    for request, who, error in (
        (wish("shut"), org_admin, AuthInsufficient),
        (wish("open"), keeper, AuthInsufficient),
        (wish("*"), keeper, AuthInsufficient),
        (wish("*", "org_admin"), keeper, AuthInsufficient),
        (wish("open"), writer, AuthInsufficient),
        (wish("shut"), writer, AuthInsufficient),
        (wish("never-made"), org_admin, NotFound),
        (wish("never-made"), keeper, AuthInsufficient),
        (wish("open", "org_admin"), org_admin, InvalidArgument),
        (wish("open", subject="svc:memory"), org_admin, InvalidArgument),
        (wish("open", subject="rights:ann@acme.org"), org_admin, InvalidArgument),
    ):
        with pytest.raises(error):
            await stub.SetGrant(request, metadata=who)

    async def listed(who: tuple[tuple[str, str], ...], **more: object) -> list[str]:
        request = access_pb2.ListGrantsRequest(**more)  # type: ignore[arg-type]  # any field
        return [f"{g.subject} {g.namespace}" for g in (await stub.ListGrants(request, metadata=who)).grants]

    assert await listed(org_admin) == ["sa:new open"]
    assert await listed(keeper) == ["sa:new shut"]
    assert await listed(writer) == []
    assert await listed(bearer(await identity.token("open:viewer", subject="sa:new"))) == ["sa:new open", "sa:new shut"]
    first = await stub.ListGrants(access_pb2.ListGrantsRequest(page_size=1, subject="sa:new"), metadata=org_admin)
    assert (len(first.grants), first.next_page_token) == (1, "")


async def test_what_becomes_restricted_is_left_to_those_who_were_given_it_by_name(identity: OrgIdentity) -> None:
    await identity.namespace("a")
    await grant(identity, "sa:bot", "*", "writer")
    await grant(identity, "sa:named", "a", "writer")
    loose, named = await identity.token("a:writer"), await identity.token("a:writer", subject="sa:named")
    admin = bearer(await identity.token("*:admin", subject="sa:root", org_admin=True))

    def change(**fields: object) -> identity_pb2.UpdateNamespaceRequest:
        return identity_pb2.UpdateNamespaceRequest(name="a", **fields)  # type: ignore[arg-type]  # any field

    done = await identity.outside.UpdateNamespace(change(restricted=True), metadata=admin)
    assert (done.changed, done.namespace.restricted) == (True, True)
    assert await outcome(identity, loose) is TokenRevoked
    assert await outcome(identity, named) is None
    with pytest.raises(AuthInsufficient):
        await identity.token("a:viewer")  # `*` does not reach it
    with pytest.raises(NotFound):  # nor does the administration of the organisation
        await identity.outside.UpdateNamespace(change(restricted=False), metadata=admin)


async def test_everything_that_is_said_of_a_namespace_reaches_services_and_absent_fields_stay(
    identity: OrgIdentity,
) -> None:
    await identity.namespace("a", owner="sa:bot", classification="secret", daily_cost_cap_usd=5, llm_cache=False)
    owner = bearer(await identity.token("a:admin"))
    reader = bearer(await identity.token("a:viewer", subject="sa:reader"))

    async def change(who: tuple[tuple[str, str], ...], **fields: object) -> identity_pb2.UpdateNamespaceResponse:
        request = identity_pb2.UpdateNamespaceRequest(name="a", **fields)  # type: ignore[arg-type]  # any field
        return await identity.outside.UpdateNamespace(request, metadata=who)

    made = (await GrpcDirectory(identity.channel("memory")).namespace_info(identity.org, "a")) or pytest.fail(
        "not there"
    )
    assert (made.owner, made.shared, made.classification) == ("sa:bot", False, "secret")
    assert (made.llm_cache, made.daily_cost_cap_usd, made.rerank_endpoint) == (False, 5.0, "")

    assert (await change(owner, traffic_class="bulk", rerank_endpoint="r", classifier_endpoint="c")).changed
    assert not (await change(owner, traffic_class="bulk")).changed
    assert (await change(owner, llm_cache="default", clear_daily_cost_cap=True, owner="")).changed
    info = (await GrpcDirectory(identity.channel("memory")).namespace_info(identity.org, "a")) or pytest.fail(
        "not there"
    )
    assert (info.owner, info.shared, info.classification, info.traffic_class) == ("", True, "secret", "bulk")
    assert (info.rerank_endpoint, info.classifier_endpoint) == ("r", "c")
    assert (info.llm_cache, info.daily_cost_cap_usd) == (None, None)
    assert info.created_at == made.created_at
    policy = identity_pb2.WritePolicy(secrets="block", blocked_words=["falcon"], duplicates=False)
    told = await change(owner, write_policy=policy)
    assert (told.changed, told.namespace.write_policy.blocked_words) == (True, ["falcon"])
    assert not (await change(owner, traffic_class="bulk")).changed
    info = (await GrpcDirectory(identity.channel("memory")).namespace_info(identity.org, "a")) or pytest.fail(
        "not there"
    )
    assert info.write_policy == WritePolicy(("falcon",), secrets=Treatment.BLOCK, duplicates=False)
    listed = await identity.outside.ListNamespaces(identity_pb2.ListNamespacesRequest(), metadata=reader)
    assert [space.HasField("write_policy") for space in listed.namespaces if space.name == "a"] == [False]
    for who, fields, error in (
        (owner, {"write_policy": identity_pb2.WritePolicy(blocked_patterns=["("])}, InvalidArgument),
        (reader, {"classification": "x"}, AuthInsufficient),
        (owner, {"daily_cost_cap_usd": 1.0, "clear_daily_cost_cap": True}, InvalidArgument),
        (bearer(await identity.token("*:admin", org="other", subject="sa:x")), {"classification": "x"}, NotFound),
    ):
        with pytest.raises(error):
            await change(who, **fields)


async def test_who_administers_a_namespace_gives_it_to_nobody_else_and_may_give_it_up(identity: OrgIdentity) -> None:
    await identity.namespace("lure", owner="sa:eve")
    await identity.namespace("mine", owner="sa:bot")
    eve = bearer(await identity.token("lure:admin", subject="sa:eve"))
    keeper = bearer(await identity.token("mine:admin", subject="sa:keeper"))
    admin = bearer(await identity.token("*:admin", subject="sa:root", org_admin=True))

    def give(name: str, owner: str) -> identity_pb2.UpdateNamespaceRequest:
        return identity_pb2.UpdateNamespaceRequest(name=name, owner=owner)

    # The oldest namespace of a subject is where its calls go that name none.
    for request, who in (
        (give("lure", "sa:bot"), eve),
        (give("mine", "sa:keeper"), keeper),
        (give("mine", ""), keeper),
    ):
        with pytest.raises(AuthInsufficient):
            await identity.outside.UpdateNamespace(request, metadata=who)
    given_up = await identity.outside.UpdateNamespace(give("lure", ""), metadata=eve)
    given = await identity.outside.UpdateNamespace(give("lure", "sa:bot"), metadata=admin)
    assert (given_up.namespace.owner, given.namespace.owner) == ("", "sa:bot")


async def test_the_first_grant_of_a_subject_with_wider_tokens_is_an_organisation_admins_to_give(
    identity: OrgIdentity,
) -> None:
    for name in ("a", "b"):
        await identity.namespace(name)
    keeper = bearer(await identity.token("a:admin", subject="sa:keeper"))
    admin = bearer(await identity.token("*:admin", subject="ann@acme.org", org_admin=True))
    await identity.token("a:viewer", subject="sa:small")

    def wish(subject: str) -> access_pb2.SetGrantRequest:
        return access_pb2.SetGrantRequest(subject=subject, on_namespace="a", role="viewer")

    with pytest.raises(AuthInsufficient) as refused:
        await identity.access().SetGrant(wish("ann@acme.org"), metadata=keeper)
    assert refused.value.detail["reason"] == "first_grant"
    await identity.outside.CreateToken(token_request("b:viewer"), metadata=admin)  # not bound
    for subject in ("sa:small", "bob@acme.org"):
        assert (await identity.access().SetGrant(wish(subject), metadata=keeper)).changed
    assert (await identity.access().SetGrant(wish("ann@acme.org"), metadata=admin)).changed


async def test_a_restricted_namespace_is_one_that_does_not_exist_to_tokens_that_do_not_name_it(
    identity: OrgIdentity,
) -> None:
    await identity.namespace("shut", restricted=True, owner="sa:keeper", classification="secret")
    member = bearer(await identity.token("*:writer", subject="sa:member"))
    admin = bearer(await identity.token("*:admin", subject="sa:root", org_admin=True))
    refusals = []
    for name in ("shut", "never-made"):
        for who, role in ((member, "viewer"), (member, "admin"), (admin, "admin")):
            with pytest.raises(LoomError) as refused:
                await identity.outside.CreateToken(token_request(f"{name}:{role}"), metadata=who)
            refusals.append((refused.value.reason, refused.value.message.replace(name, "it")))
    assert refusals[:3] == refusals[3:]

    # Its name is taken, and that is all that is told; who made it may send the call again.
    for kind in ("memory", "code"):
        with pytest.raises(Conflict) as taken:
            await identity.outside.CreateNamespace(
                identity_pb2.CreateNamespaceRequest(name="shut", kind=kind), metadata=admin
            )
        assert dict(taken.value.detail) == {"namespace": "shut"}
    again = identity_pb2.CreateNamespaceRequest(name="own", restricted=True)
    made = [(await identity.outside.CreateNamespace(again, metadata=admin)).created for _ in range(2)]
    assert made == [True, False]


async def test_a_subject_that_is_ended_again_and_again_is_held_once(identity: OrgIdentity) -> None:
    held = len(identity.identity.feed)
    for _ in range(3):
        await identity.operator.RevokeToken(identity_pb2.RevokeTokenRequest(org=identity.org, subject="sa:bot"))
    assert len(identity.identity.feed) == held + 1


async def test_ending_a_subject_ends_every_token_that_depends_on_it_and_none_that_it_is_given_later(
    identity: OrgIdentity,
) -> None:
    await identity.namespace("a")
    admin = await identity.token("*:admin", subject="ann@acme.org", org_admin=True)
    own = await identity.token("a:writer")
    made = await identity.outside.CreateToken(token_request("a:viewer", subject="sa:made"), metadata=bearer(admin))
    stub = identity.outside

    def end(**fields: object) -> identity_pb2.RevokeTokenRequest:
        return identity_pb2.RevokeTokenRequest(**fields)  # type: ignore[arg-type]  # any field

    with pytest.raises(AuthInsufficient):
        await stub.RevokeToken(end(subject="ann@acme.org"), metadata=bearer(own))
    for fields in ({}, {"subject": "sa:bot", "token_id": "x"}):
        with pytest.raises(InvalidArgument):
            await stub.RevokeToken(end(**fields), metadata=bearer(own))
    with pytest.raises(NotFound):
        await stub.RevokeToken(end(session="none"), metadata=bearer(own))
    done = await identity.operator.RevokeToken(end(org=identity.org, subject="ann@acme.org"))
    assert (done.subject, done.token_id, bool(done.revoked_at)) == ("ann@acme.org", "", True)
    assert [await outcome(identity, token) for token in (admin, made.token, own)] == [TokenRevoked, TokenRevoked, None]
    later = await identity.token("a:viewer", subject="ann@acme.org")
    assert await outcome(identity, later) is None
    # A subject ends its own tokens, the one that asks among them.
    await stub.RevokeToken(end(subject="sa:bot"), metadata=bearer(own))
    assert await outcome(identity, own) is TokenRevoked


async def test_a_disabled_account_holds_nothing_until_it_is_enabled(identity: OrgIdentity) -> None:
    await identity.namespace("a")
    token = await identity.token("a:writer")
    stub = identity.access("operator")

    def account(**fields: object) -> access_pb2.SetAccountRequest:
        return access_pb2.SetAccountRequest(org=identity.org, subject="sa:bot", **fields)  # type: ignore[arg-type]  # any

    first = await stub.SetAccount(account(display_name="Bot", disabled=True))
    assert (first.created, first.account.kind, first.account.disabled) == (True, "service_account", True)
    assert await outcome(identity, token) is TokenRevoked
    with pytest.raises(AuthInsufficient):
        await identity.token("a:viewer")
    second = await stub.SetAccount(account(disabled=False))
    assert (second.created, second.account.display_name) == (False, "Bot")
    assert await outcome(identity, await identity.token("a:viewer")) is None
    listed = await stub.ListAccounts(access_pb2.ListAccountsRequest(org=identity.org))
    assert [(one.subject, one.disabled) for one in listed.accounts] == [("sa:bot", False)]


async def test_organisations_are_made_by_the_operator_and_seen_by_their_own(identity: OrgIdentity) -> None:
    await identity.namespace("a")
    operator, outside = identity.access("operator"), identity.access()
    made = await operator.CreateOrg(access_pb2.CreateOrgRequest(name=identity.org, display_name="Acme Ltd"))
    assert (made.created, made.org.display_name) == (True, "Acme Ltd")
    assert not (await operator.CreateOrg(access_pb2.CreateOrgRequest(name=identity.org, display_name="x"))).created
    await operator.CreateOrg(access_pb2.CreateOrgRequest(name="zeta"))
    first = await operator.ListOrgs(access_pb2.ListOrgsRequest(page_size=1))
    rest = await operator.ListOrgs(access_pb2.ListOrgsRequest(page_size=1, page_token=first.next_page_token))
    assert [org.name for org in (*first.orgs, *rest.orgs)] == [identity.org, "zeta"]

    reader = bearer(await identity.token("a:viewer"))
    admin = bearer(await identity.token("*:admin", org_admin=True))
    assert [org.name for org in (await outside.ListOrgs(access_pb2.ListOrgsRequest(), metadata=reader)).orgs] == [
        identity.org
    ]
    with pytest.raises(AuthInsufficient):
        await outside.CreateOrg(access_pb2.CreateOrgRequest(name=identity.org), metadata=admin)
    with pytest.raises(AuthInsufficient):
        await outside.UpdateOrg(access_pb2.UpdateOrgRequest(display_name="x"), metadata=reader)
    await outside.UpdateOrg(access_pb2.UpdateOrgRequest(display_name="Acme"), metadata=admin)
    assert (await outside.GetOrg(access_pb2.GetOrgRequest(), metadata=reader)).org.display_name == "Acme"


async def test_a_services_own_token_for_a_caller_is_narrow_short_not_listed_and_ends_with_it(
    identity: OrgIdentity,
) -> None:
    await identity.namespace("a")
    caller = await identity.token("a:writer", ttl_s=100)

    def wish(**fields: object) -> directory_pb2.DelegateRequest:
        facts = {"namespace": "a", "role": "viewer", "ttl_s": 600, **fields}
        return directory_pb2.DelegateRequest(**facts)  # type: ignore[arg-type]  # any field

    stub = identity.directory()
    made = await stub.Delegate(
        wish(consumer="loom-assistant", token_id_prefix="assistant-answer-"), metadata=bearer(caller)
    )
    claims, parent = verified(identity, made.token), verified(identity, caller)
    assert made.token_id == claims.jti
    assert claims.jti.startswith("assistant-answer-")
    assert (claims.sub, claims.consumer, claims.exp) == (parent.sub, "loom-assistant", parent.exp)
    assert [(g.namespace, g.role.label) for g in claims.namespaces] == [("a", "viewer")]
    listed = await identity.outside.ListTokens(identity_pb2.ListTokensRequest(), metadata=bearer(caller))
    assert [token.token_id for token in listed.tokens] == [parent.jti]
    for fields, error in (
        ({"role": "admin"}, AuthInsufficient),
        ({"namespace": "b"}, AuthInsufficient),
        # A session's own token bounds no child, so no service makes one that is taken for such.
        ({"token_id_prefix": "session-"}, InvalidArgument),
    ):
        with pytest.raises(error):
            await stub.Delegate(wish(**fields), metadata=bearer(caller))
    with pytest.raises(Unauthenticated):
        await stub.Delegate(wish())
    outside = type(stub)(identity.channel())
    with pytest.raises(AuthInsufficient):
        await outside.Delegate(wish(), metadata=bearer(caller))
    await identity.outside.RevokeToken(identity_pb2.RevokeTokenRequest(token_id=parent.jti), metadata=bearer(caller))
    assert await outcome(identity, made.token) is TokenRevoked


async def test_what_headers_of_model_calls_name_is_read_from_identity(identity: OrgIdentity) -> None:
    trust = access_pb2.SetTrustRequest(
        org=identity.org,
        name="ci",
        issuer="https://issuer.example",
        audience="loom",
        jwks_url="https://issuer.example/keys",
        required_claims=[access_pb2.RequiredClaim(name="tenant", values=["t1"])],
    )
    made = await identity.access("operator").SetTrust(trust)
    reads = DirectoryReads(GrpcDirectory(identity.channel("memory")))

    assert made.created
    assert await reads.trust_claims(identity.org, "ci") == {"tenant": ("t1",)}
    assert await reads.trust_claims("other", "ci") == {}
    assert await reads.account_email(identity.org, "ann@acme.org") == ""
    trust.required_claims.append(access_pb2.RequiredClaim(name="tenant", values=["t2"]))
    with pytest.raises(InvalidArgument):
        await identity.access("operator").SetTrust(trust)
    assert (
        await identity.access("operator").RemoveTrust(access_pb2.RemoveTrustRequest(org=identity.org, name="ci"))
    ).removed
    assert await reads.trust_claims(identity.org, "ci") == {}


async def test_a_program_that_a_person_lets_in_gets_no_more_than_that_and_ends_apart_from_the_person(
    identity: OrgIdentity,
) -> None:
    await identity.namespace("a")
    await grant(identity, "ann@acme.org", "*", "org_admin")
    sessions = identity.identity.sessions
    own = await sessions.begin(identity.org, "ann@acme.org", "link")
    people = SignedInPeople(sessions)
    request = Request({"type": "http", "headers": [(b"cookie", f"__Host-loom={own.cookie}".encode())]})
    person = await people.who(request)

    assert person == Person(identity.org, "ann@acme.org", own.session.sid)
    assert await people.who(Request({"type": "http", "headers": []})) is None
    assert people.sign_in_url("/oauth/authorize?a=b") == "/sign-in?return_to=%2Foauth%2Fauthorize%3Fa%3Db"
    given = await people.open(person, client="Desktop", role=Role.WRITER)
    claims = verified(identity, (await people.token(given)).token)
    assert (claims.sub, claims.consumer, claims.org_admin, claims.sid) == ("ann@acme.org", "Desktop", False, given.id)
    assert [(held.namespace, held.role.label) for held in claims.namespaces] == [("*", "writer")]
    # What the program makes of its token ends no later than that: it is no session of a person.
    held = (await people.token(given)).token
    child = await identity.outside.CreateToken(token_request("a:viewer", ttl_s=86_400), metadata=bearer(held))
    assert verified(identity, child.token).exp == verified(identity, held).exp

    await people.end(given)
    await people.end(given)
    assert [await outcome(identity, token) for token in (held, child.token)] == [TokenRevoked, TokenRevoked]
    with pytest.raises(TokenRevoked):
        await people.token(given)
    assert await people.who(request) == person
