"""Which texts are tokens, and what the cache in front of the signature may not hide."""

import base64
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from loom_common.auth.claims import Claims, NamespaceGrant, Role
from loom_common.auth.revocations import Revocation
from loom_common.auth.tokens import SigningKey, jwks, parse_jwks, sign_payload, sign_token
from loom_common.auth.verifier import LocalIdentity, TokenVerifier, kept_keys
from loom_common.clock import FakeClock
from loom_common.errors import BackendUnavailable, TokenExpired, TokenRevoked, Unauthenticated

KEY = SigningKey.generate("k1")


class CountingKeys(LocalIdentity):
    """Counts how often a key was asked for."""

    unread = False

    def verification_key(self, kid: str) -> Ed25519PublicKey | None:
        if self.unread:
            raise BackendUnavailable("Identity is away.")
        return super().verification_key(kid)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def identity() -> CountingKeys:
    return CountingKeys(KEY)


@pytest.fixture
def verifier(identity: CountingKeys, clock: FakeClock) -> TokenVerifier:
    return TokenVerifier(identity, identity, clock)


def claims(clock: FakeClock, **changes: object) -> Claims:
    now_s = clock.now().timestamp()
    facts: dict[str, object] = {
        "sub": "sa:bot",
        "org": "acme",
        "namespaces": (NamespaceGrant("default", Role.WRITER),),
        "jti": "j",
        "iat": now_s,
        "exp": now_s + 60,
    }
    return Claims(**{**facts, **changes})  # type: ignore[arg-type]  # any field


def payload(clock: FakeClock, **changes: object) -> dict[str, object]:
    whole = {**claims(clock).to_payload(), "iss": "loom", "aud": "loom", **changes}
    return {name: value for name, value in whole.items() if value is not None}


def test_a_good_token_says_what_was_signed(verifier: TokenVerifier, clock: FakeClock) -> None:
    expected = claims(clock, user_id="u")
    token = sign_token(expected, KEY)
    assert verifier.verify(token) == expected
    assert verifier.verify(token) is verifier.verify(token)


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "another"},
        {"aud": "loom-internal"},
        {"iss": None},
        {"aud": None},
        {"exp": None},
        {"sub": None},
        {"org": 7},
    ],
)
def test_a_payload_that_is_not_ours_is_refused(
    verifier: TokenVerifier, clock: FakeClock, changes: dict[str, object]
) -> None:
    with pytest.raises(Unauthenticated):
        verifier.verify(sign_payload(payload(clock, **changes), KEY))


def test_other_algorithms_are_refused(verifier: TokenVerifier, clock: FakeClock) -> None:
    public = KEY.private.public_key().public_bytes_raw()
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "k1"}).encode()).rstrip(b"=").decode()
    body = base64.urlsafe_b64encode(json.dumps(payload(clock)).encode()).rstrip(b"=").decode()
    symmetric = jwt.encode(payload(clock), public, algorithm="HS256", headers={"kid": "k1"})
    for token in (f"{head}.{body}.", symmetric):
        with pytest.raises(Unauthenticated):
            verifier.verify(token)


@pytest.mark.parametrize("kid", [None, "", "k2", 5])
def test_an_unknown_key_name_is_refused(verifier: TokenVerifier, clock: FakeClock, kid: object) -> None:
    token = (
        jwt.PyJWS().encode(json.dumps(payload(clock)).encode(), KEY.private, algorithm="EdDSA", headers={"x": 1})
        if kid is None
        else _with_kid(clock, kid)
    )
    with pytest.raises(Unauthenticated):
        verifier.verify(token)


def _with_kid(clock: FakeClock, kid: object) -> str:
    head = base64.urlsafe_b64encode(json.dumps({"alg": "EdDSA", "typ": "JWT", "kid": kid}).encode()).rstrip(b"=")
    body = base64.urlsafe_b64encode(json.dumps(payload(clock)).encode()).rstrip(b"=")
    signature = base64.urlsafe_b64encode(KEY.private.sign(head + b"." + body)).rstrip(b"=")
    return b".".join((head, body, signature)).decode()


@pytest.mark.parametrize("text", ["", "a", "a.b.c", "\x00.\x00.\x00", "é.é.é", "\ud800", "x" * 20_000, "." * 100])
def test_texts_that_are_no_tokens_are_refused(verifier: TokenVerifier, text: str) -> None:
    with pytest.raises(Unauthenticated):
        verifier.verify(text)


def test_a_changed_payload_is_refused(verifier: TokenVerifier, clock: FakeClock) -> None:
    head, _, signature = sign_token(claims(clock), KEY).split(".")
    body = base64.urlsafe_b64encode(json.dumps(payload(clock, org="umbrella")).encode()).rstrip(b"=").decode()
    with pytest.raises(Unauthenticated):
        verifier.verify(f"{head}.{body}.{signature}")


def test_a_kept_token_still_expires(verifier: TokenVerifier, clock: FakeClock) -> None:
    token = sign_token(claims(clock), KEY)
    verifier.verify(token)
    clock.advance(60)
    for _ in range(2):
        with pytest.raises(TokenExpired):
            verifier.verify(token)


def test_a_kept_token_is_still_revoked(verifier: TokenVerifier, identity: CountingKeys, clock: FakeClock) -> None:
    token = sign_token(claims(clock), KEY)
    verifier.verify(token)
    identity.revocations.add(Revocation("token", "j", 1.0))
    with pytest.raises(TokenRevoked):
        verifier.verify(token)


def test_a_kept_token_ends_with_its_key(verifier: TokenVerifier, identity: CountingKeys, clock: FakeClock) -> None:
    token = sign_token(claims(clock), KEY)
    verifier.verify(token)
    identity.set_keys({"k2": SigningKey.generate().private.public_key()})
    with pytest.raises(Unauthenticated):
        verifier.verify(token)


def test_a_key_that_is_read_again_keeps_its_tokens(
    verifier: TokenVerifier, identity: CountingKeys, clock: FakeClock
) -> None:
    token = sign_token(claims(clock), KEY)
    first = verifier.verify(token)
    identity.set_keys(parse_jwks(jwks([KEY.public_jwk()])))
    assert verifier.verify(token) is first


def test_a_key_of_the_same_name_that_differs_is_taken_over() -> None:
    other = SigningKey.generate("k1").private.public_key()
    held = {"k1": KEY.private.public_key()}
    assert kept_keys(held, {"k1": other})["k1"] is other


def test_keys_that_cannot_be_read_make_no_token_unauthenticated(
    verifier: TokenVerifier, identity: CountingKeys, clock: FakeClock
) -> None:
    identity.unread = True
    with pytest.raises(BackendUnavailable):
        verifier.verify(sign_token(claims(clock), KEY))


def test_a_private_key_survives_the_way_through_a_jwk() -> None:
    again = SigningKey.from_jwk(KEY.to_jwk())
    assert again.kid == "k1"
    assert again.public_jwk() == KEY.public_jwk()
    assert "d" not in KEY.public_jwk()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": 1}', '{"keys": [{}]}', jwks([KEY.public_jwk()] * 2)])
def test_a_text_that_is_no_jwks_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_jwks(text)


def test_a_private_key_is_no_public_one() -> None:
    with pytest.raises(ValueError, match="public"):
        parse_jwks(json.dumps({"keys": [json.loads(KEY.to_jwk())]}))
    with pytest.raises(ValueError, match="private"):
        SigningKey.from_jwk(json.dumps(KEY.public_jwk()))
