"""Workloads' tokens exchanged for agents': a real issuer over HTTP, a real server and the real engine."""

import base64
import gzip
import hashlib
import hmac
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from support.clickhouse import MeanwhileClickHouse
from support.identity import OrgIdentity, RunningIdentity, bearer, running_identity, token_request
from support.issuer import ISSUER, Issuer, claims, public_jwk, rsa_key, running_issuer

from loom.identity.v1 import access_pb2, identity_pb2
from loom_common.auth.claims import Claims, Role
from loom_common.clickhouse import ClickHouseSettings
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clock import FakeClock
from loom_common.errors import AuthInsufficient, BackendUnavailable, InvalidArgument, TokenRevoked, Unauthenticated
from loom_gateway.identity.app.jwks import IssuerKeySource, KeysUnusable, fetch_document
from loom_gateway.identity.domain.trusts import Trust

pytestmark = pytest.mark.asyncio(loop_scope="module")

_ORGS = itertools.count(1)
RSA, OTHER_RSA = rsa_key(), rsa_key()
EC, ED = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def database(clickhouse_engine: EmbeddedEngine) -> AsyncIterator[MeanwhileClickHouse]:
    ch = MeanwhileClickHouse(clickhouse_engine, "identity_exchange", ClickHouseSettings(pool_size=4))
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
def identity(running: RunningIdentity, issuer: Issuer) -> OrgIdentity:
    issuer.publish(public_jwk(RSA, "k1", alg="RS256"), public_jwk(EC, "k2"), public_jwk(ED, "k3"))
    return OrgIdentity(running, f"acme{next(_ORGS)}")


def trust(org: str, **changed: Any) -> access_pb2.SetTrustRequest:
    facts = {
        "org": org,
        "name": "ci",
        "issuer": "https://issuer.example",
        "audience": "loom",
        "required_claims": [access_pb2.RequiredClaim(name="repository", values=["acme/*", "umbrella"])],
        **changed,
    }
    return access_pb2.SetTrustRequest(**facts)


async def set_trust(identity: OrgIdentity, issuer: Issuer, **changed: Any) -> None:
    keys = {} if "jwks" in changed else {"jwks_url": f"{issuer.url}/jwks"}
    await identity.access("operator").SetTrust(trust(identity.org, **keys, **changed))


async def exchange(identity: OrgIdentity, token: str, **more: Any) -> identity_pb2.ExchangeTokenResponse:
    request = identity_pb2.ExchangeTokenRequest(**{"org": identity.org, "trust": "ci", **more}, subject_token=token)
    return await identity.outside.ExchangeToken(request)


def verified(identity: OrgIdentity, answer: identity_pb2.ExchangeTokenResponse) -> Claims:
    return identity.identity.verifier.verify(answer.access_token)


async def test_a_workloads_token_becomes_an_agents_with_a_namespace_of_its_own(
    identity: OrgIdentity, issuer: Issuer
) -> None:
    await set_trust(identity, issuer)
    await identity.namespace("shared")
    await identity.access("operator").SetGrant(
        access_pb2.SetGrantRequest(org=identity.org, subject="sa:ci:*", on_namespace="shared", role="viewer")
    )
    first = await exchange(identity, issuer.sign(RSA))
    again = await exchange(identity, issuer.sign(RSA), ttl_s=60)
    other = await exchange(identity, issuer.sign(RSA, sub="repo:acme/app:ref:refs/heads/main"))
    agent = verified(identity, first)

    assert (first.token_type, first.issued_token_type[-12:], first.expires_in) == ("Bearer", "access_token", 3600)
    assert (first.subject, first.namespace, agent.sub) == ("sa:ci:build-1", "ci:build-1", "sa:ci:build-1")
    assert [(g.namespace, g.role.label) for g in agent.namespaces] == [("ci:build-1", "writer"), ("shared", "viewer")]
    assert (again.namespace, again.expires_in) == (first.namespace, 60)
    assert other.namespace.startswith("ci:repo-acme-app-ref-refs-heads-main-")
    spaces = await identity.outside.ListNamespaces(
        identity_pb2.ListNamespacesRequest(), metadata=bearer(first.access_token)
    )
    assert [(one.name, one.owner) for one in spaces.namespaces] == [("ci:build-1", "sa:ci:build-1"), ("shared", "")]
    # The token is listed, so that it can be ended.
    await identity.operator.RevokeToken(identity_pb2.RevokeTokenRequest(org=identity.org, token_id=first.token_id))
    with pytest.raises(TokenRevoked):
        verified(identity, first)


async def test_every_key_and_form_that_a_trust_takes_is_taken(identity: OrgIdentity, issuer: Issuer) -> None:
    required = [
        access_pb2.RequiredClaim(name="/kubernetes.io/namespace", values=["prod"]),
        access_pb2.RequiredClaim(name="groups", values=["b"]),
    ]
    await set_trust(
        identity, issuer, required_claims=required, agent_claim="/kubernetes.io/pod", role="viewer", token_ttl_s=120
    )
    payload: dict[str, Any] = {
        "kubernetes.io": {"namespace": "prod", "pod": "web"},
        "groups": ["a", "b"],
        "aud": ["x", "loom"],
    }
    for key, kid, algorithm in ((RSA, "k1", "RS256"), (EC, "k2", "ES256"), (ED, "k3", "EdDSA")):
        answer = await exchange(identity, issuer.sign(key, kid, algorithm, **payload))
        assert (answer.subject, answer.expires_in) == ("sa:ci:web", 120)
        assert verified(identity, answer).namespaces[0].role.label == "viewer"
    await set_trust(identity, issuer, jwks=json.dumps({"keys": [public_jwk(OTHER_RSA, "only")]}))
    assert (await exchange(identity, issuer.sign(OTHER_RSA, None, "PS256"))).subject == "sa:ci:build-1"


def with_header(token: str, **changed: Any) -> str:
    """Returns a token whose header says something else; its signature stays."""
    head, *rest = token.split(".")
    header = json.loads(base64.urlsafe_b64decode(head + "=="))
    header.update(changed)
    return ".".join([base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode(), *rest])


def signed_with_the_public_key(kid: str = "k1") -> str:
    """Returns a token whose HMAC has the issuer's public key as its secret."""
    jwk = json.dumps(public_jwk(RSA, "k1")).encode()

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    signed = part({"alg": "HS256", "kid": kid}) + b"." + part(claims())
    mac = base64.urlsafe_b64encode(hmac.digest(jwk, signed, hashlib.sha256)).rstrip(b"=")
    return (signed + b"." + mac).decode()


async def test_no_other_token_is_taken_and_none_is_told_why(identity: OrgIdentity, issuer: Issuer) -> None:
    await set_trust(identity, issuer)
    good = issuer.sign(RSA)
    now = claims()["iat"]
    bad = {
        "another issuer": issuer.sign(RSA, iss="https://evil.example"),
        "no issuer": issuer.sign(RSA, iss=None),
        "another audience": issuer.sign(RSA, aud="other"),
        "no audience": issuer.sign(RSA, aud=None),
        "expired": issuer.sign(RSA, exp=now - 120),
        "an end that is no number": issuer.sign(RSA, exp=float("nan")),
        "no end": issuer.sign(RSA, exp=None),
        "an end that is no time": with_header(issuer.sign(RSA, jti="x"), typ="JWT")[:-4] + "AAAA",
        "not yet good": issuer.sign(RSA, nbf=now + 600),
        "issued later": issuer.sign(RSA, iat=now + 600),
        "no time of issue": issuer.sign(RSA, iat=None),
        "another claim": issuer.sign(RSA, repository="umbra/app"),
        "a claim too few": issuer.sign(RSA, repository=None),
        "a claim that is longer": issuer.sign(RSA, repository="umbrella-2"),
        "a claim of another type": issuer.sign(RSA, repository={"acme/": 1}),
        "no agent": issuer.sign(RSA, sub=None),
        "every agent": issuer.sign(RSA, sub="*"),
        "an agent with a space": issuer.sign(RSA, sub="a b"),
        "an agent too long": issuer.sign(RSA, sub="a" * 300),
        "another's key under the name": issuer.sign(OTHER_RSA),
        "an unknown key": issuer.sign(RSA, "k9"),
        "no key among several": issuer.sign(RSA, None),
        "another kind of key under the name": issuer.sign(EC, "k1", "ES256"),
        "another signature than the key's": issuer.sign(RSA, "k1", "RS512"),
        "no signature": with_header(good, alg="none").rpartition(".")[0] + ".",
        "a shared secret": issuer.sign("s" * 64, "k1", "HS256"),
        "the public key as a secret": signed_with_the_public_key(),
        "a critical header": with_header(good, crit=["b64"], b64=False),
        "another form": with_header(good, typ="dpop+jwt"),
        "changed": good[:-8] + ("AAAAAAAA" if not good.endswith("AAAAAAAA") else "BBBBBBBB"),
        "one of ours": await _ours(identity),
        "no token": "a.b.c",
    }
    messages = set()
    for name, token in bad.items():
        try:
            await exchange(identity, token)
        except Unauthenticated as refused:
            messages.add(refused.message)
        else:
            pytest.fail(f"{name} was taken")
    with pytest.raises(Unauthenticated) as unknown:
        await exchange(identity, good, trust="never-made")
    assert messages == {unknown.value.message}
    with pytest.raises(InvalidArgument):
        await exchange(identity, good, org="_system")
    await identity.access("operator").RemoveTrust(access_pb2.RemoveTrustRequest(org=identity.org, name="ci"))
    with pytest.raises(Unauthenticated):
        await exchange(identity, good)


async def _ours(identity: OrgIdentity) -> str:
    await identity.namespace("a")
    return await identity.token("a:viewer")


async def test_a_trust_that_is_removed_ends_its_agents_and_another_that_is_made_lets_them_in_again(
    identity: OrgIdentity, issuer: Issuer
) -> None:
    await set_trust(identity, issuer)
    await set_trust(identity, issuer, name="ci2")
    agent, other = await exchange(identity, issuer.sign(RSA)), await exchange(identity, issuer.sign(RSA), trust="ci2")
    child = await identity.outside.CreateToken(
        token_request(f"{agent.namespace}:viewer"), metadata=bearer(agent.access_token)
    )
    remove = access_pb2.RemoveTrustRequest(org=identity.org, name="ci")
    removed = [(await identity.access("operator").RemoveTrust(remove)).removed for _ in range(2)]

    assert removed == [True, False]
    for token in (agent.access_token, child.token):
        with pytest.raises(TokenRevoked):
            identity.identity.verifier.verify(token)
    assert verified(identity, other).sub == "sa:ci2:build-1"
    await set_trust(identity, issuer)
    again = await exchange(identity, issuer.sign(RSA))
    assert (verified(identity, again).sub, again.namespace) == ("sa:ci:build-1", agent.namespace)


async def test_a_trust_that_is_replaced_ends_what_it_issued_and_nothing_of_another(
    identity: OrgIdentity, issuer: Issuer
) -> None:
    await set_trust(identity, issuer)
    await set_trust(identity, issuer, name="ci2")
    agent, other = await exchange(identity, issuer.sign(RSA)), await exchange(identity, issuer.sign(RSA), trust="ci2")
    child = await identity.outside.CreateToken(
        token_request(f"{agent.namespace}:viewer"), metadata=bearer(agent.access_token)
    )
    await set_trust(identity, issuer, audience="https://another.example")

    for token in (agent.access_token, child.token):
        with pytest.raises(TokenRevoked):
            identity.identity.verifier.verify(token)
    with pytest.raises(Unauthenticated):
        await exchange(identity, issuer.sign(RSA))
    assert verified(identity, other).sub == "sa:ci2:build-1"
    await set_trust(identity, issuer)
    again = await exchange(identity, issuer.sign(RSA))
    assert (verified(identity, again).sub, again.namespace) == ("sa:ci:build-1", agent.namespace)


@pytest.mark.parametrize("is_removed", [True, False])
async def test_a_trust_that_is_removed_or_replaced_while_a_token_is_exchanged_gives_none(
    identity: OrgIdentity, issuer: Issuer, database: MeanwhileClickHouse, is_removed: bool
) -> None:
    await set_trust(identity, issuer)
    remove = access_pb2.RemoveTrustRequest(org=identity.org, name="ci")

    async def change() -> None:
        if is_removed:
            await identity.access("operator").RemoveTrust(remove)
        else:
            await set_trust(identity, issuer, audience="https://another.example")

    database.after_reading("trusts", change)

    with pytest.raises(Unauthenticated):
        await exchange(identity, issuer.sign(RSA))
    tokens = await identity.operator.ListTokens(identity_pb2.ListTokensRequest(org=identity.org))
    assert list(tokens.tokens) == []


async def test_a_trust_names_keys_that_may_be_read_and_used(identity: OrgIdentity, issuer: Issuer) -> None:
    admin = bearer(await identity.token("*:admin", subject="sa:root", org_admin=True))
    public = {"jwks_url": "https://issuer.example/jwks"}
    made = await identity.access().SetTrust(trust(identity.org, **public), metadata=admin)
    assert made.created
    for changed in (
        {},
        {**public, "jwks": json.dumps({"keys": [public_jwk(RSA, "k1")]})},
        {"jwks": json.dumps({"keys": [public_jwk(rsa_key(1024), "weak")]})},
        {"jwks": json.dumps({"keys": [{"kty": "oct", "k": "AAAA", "kid": "k"}]})},
        {"jwks": json.dumps({"keys": [public_jwk(RSA, "same"), public_jwk(EC, "same")]})},
        {"jwks": "{}"},
        {"jwks_url": "http://issuer.example/jwks"},
        {"jwks_url": f"{issuer.url}/jwks"},
        {"jwks_url": "https://127.0.0.1/jwks"},
        {"jwks_url": "https://[::1]/jwks"},
        {"jwks_url": "https://[::ffff:10.0.0.1]/jwks"},
        {"jwks_url": "https://169.254.169.254/latest"},
        {"jwks_url": "https://localhost/jwks"},
        {"jwks_url": "https://kubernetes/jwks"},
        {"jwks_url": "https://db.internal/jwks"},
        {"jwks_url": "https://user:pass@issuer.example/jwks"},
        {"jwks_url": "file:///etc/passwd"},
        {**public, "name": "a:b"},
    ):
        with pytest.raises(InvalidArgument):
            await identity.access().SetTrust(trust(identity.org, **changed), metadata=admin)
    listed = await identity.access().ListTrusts(access_pb2.ListTrustsRequest(), metadata=admin)
    assert [(one.name, one.jwks_url, one.role, one.token_ttl_s) for one in listed.trusts] == [
        ("ci", "https://issuer.example/jwks", "writer", 3600)
    ]
    # Other keys under a name that the operator set would hold all that its agents were given.
    await set_trust(identity, issuer, name="operators")
    with pytest.raises(AuthInsufficient):
        await identity.access().SetTrust(trust(identity.org, **public, name="operators"), metadata=admin)
    member = bearer(await identity.token("*:admin", subject="sa:member"))
    with pytest.raises(AuthInsufficient):
        await identity.access().SetTrust(trust(identity.org, **public), metadata=member)


async def test_keys_are_kept_for_minutes_and_read_again_for_a_new_one(identity: OrgIdentity, issuer: Issuer) -> None:
    clock = FakeClock()
    stored = Trust(
        org=identity.org,
        name="ci",
        issuer=ISSUER,
        audience="loom",
        jwks_url=f"{issuer.url}/jwks",
        jwks="",
        required_claims={},
        agent_claim="sub",
        role=Role.WRITER,
        token_ttl_s=60,
        by_operator=True,
        updated_at=clock.now(),
        updated_by="svc:operator",
    )
    source = IssuerKeySource(clock)
    issuer.asked.clear()

    assert await source.key(stored, "k1") is not None
    assert await source.key(stored, "unknown") is None
    assert len(issuer.asked) == 1  # an unknown name makes no reading at once
    clock.advance(31)
    issuer.publish(public_jwk(OTHER_RSA, "k9"))
    assert await source.key(stored, "k1") is not None  # known, and kept for five minutes
    assert await source.key(stored, "k9") is not None
    assert await source.key(stored, "k1") is None  # replaced
    assert len(issuer.asked) == 2
    clock.advance(301)
    issuer.documents["/jwks"] = (503, {}, b"")
    asked = len(issuer.asked)
    for _ in range(3):
        with pytest.raises(BackendUnavailable):
            await source.key(stored, "k9")
    assert len(issuer.asked) == asked + 1  # whoever asks needs no token: not each makes a reading
    issuer.publish(public_jwk(OTHER_RSA, "k9"))
    clock.advance(6)
    assert await source.key(stored, "k9") is not None


async def test_a_document_is_read_within_bounds_and_from_nowhere_else(issuer: Issuer) -> None:
    issuer.documents["/moved"] = (302, {"location": f"{issuer.url}/jwks"}, b"")
    issuer.documents["/long"] = (200, {}, b" " * 300_000)
    issuer.documents["/binary"] = (200, {}, b"\xff\xfe")
    packed = gzip.compress(json.dumps({"keys": [public_jwk(RSA, "k1")]}).encode())
    issuer.documents["/packed"] = (200, {"content-encoding": "gzip"}, packed)
    for path in ("/moved", "/long", "/binary", "/missing", "/packed"):
        with pytest.raises(KeysUnusable):
            await fetch_document(issuer.url + path, public_only=False)
    with pytest.raises(KeysUnusable):
        await fetch_document("https://127.0.0.1:1/jwks", public_only=False)
    issuer.asked.clear()
    with pytest.raises(KeysUnusable, match="inside"):  # `localhost` passes no rule; a public name may lead here too
        await fetch_document(issuer.url.replace("127.0.0.1", "localhost") + "/jwks", public_only=True)
    assert issuer.asked == []
