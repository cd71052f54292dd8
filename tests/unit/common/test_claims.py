"""What claims say, and which payloads are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.auth.claims import (
    ALL_NAMESPACES,
    RESERVED_NAMES,
    Claims,
    ClaimsError,
    NamespaceGrant,
    ReadScope,
    Role,
    claims_from_payload,
)

_CHARS = st.characters(min_codepoint=0x20, exclude_categories=("Cs",))
_NAMES = st.text(_CHARS, min_size=1, max_size=30).filter(lambda name: name not in RESERVED_NAMES | {ALL_NAMESPACES})
_TEXTS = st.text(_CHARS, max_size=30)
_CHAINS = st.lists(_NAMES, max_size=4).map(tuple)
_GRANTED = st.sampled_from([Role.VIEWER, Role.WRITER, Role.ADMIN])
_GRANTS = st.lists(
    st.builds(NamespaceGrant, _NAMES | st.just(ALL_NAMESPACES), _GRANTED),
    max_size=5,
    unique_by=lambda one: one.namespace,
).map(tuple)
_TIMES = st.floats(min_value=0, max_value=4e9, allow_nan=False) | st.integers(0, 4_000_000_000).map(float)
_CLAIMS = st.builds(
    Claims,
    sub=_NAMES,
    org=_NAMES,
    namespaces=_GRANTS,
    jti=_NAMES,
    iat=_TIMES,
    exp=_TIMES,
    consumer=_TEXTS,
    parents=_CHAINS,
    creator=_TEXTS,
    parent_subjects=_CHAINS,
    sid=_TEXTS,
    user_id=_NAMES,
    session_id=_NAMES,
    read_scope=st.sampled_from(ReadScope),
    org_admin=st.booleans(),
)


def payload(**changes: object) -> dict[str, object]:
    whole: dict[str, object] = {
        "sub": "sa:bot",
        "org": "acme",
        "namespaces": [{"namespace": "default", "role": "writer"}],
        "jti": "j",
        "iat": 1,
        "exp": 2,
    }
    whole.update(changes)
    return {name: value for name, value in whole.items() if value is not ...}


@given(_CLAIMS)
def test_claims_survive_the_way_through_a_payload(claims: Claims) -> None:
    assert claims_from_payload(claims.to_payload()) == claims


@given(_CLAIMS, _NAMES)
def test_the_role_on_a_namespace_is_the_larger_of_the_named_and_the_wide_one(claims: Claims, other: str) -> None:
    for namespace in [other, *(grant.namespace for grant in claims.namespaces)]:
        expected = [role for role in (claims.named_role(namespace), claims.wide_role) if role is not None]
        assert claims.role_on(namespace) == (max(expected) if expected else None)
    assert claims.named_role(ALL_NAMESPACES) is None
    if claims.org_admin:
        assert claims.role_on(other) == Role.ADMIN


@given(_CLAIMS)
def test_the_default_namespace_is_the_first_that_is_named(claims: Claims) -> None:
    named = [grant.namespace for grant in claims.namespaces if grant.namespace != ALL_NAMESPACES]
    assert claims.default_namespace == (named[0] if named else None)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(Claims.__dataclass_fields__)) | st.text(), _JSON, max_size=15))
def test_any_payload_is_either_claims_or_refused(anything: dict[str, object]) -> None:
    try:
        claims = claims_from_payload(anything)
    except ClaimsError:
        return
    assert claims.sub
    assert claims.org
    assert claims.jti


@pytest.mark.parametrize(
    "changes",
    [
        {"sub": ...},
        {"sub": ""},
        {"sub": 1},
        {"org": ...},
        {"org": "_none"},
        {"org": "*"},
        {"jti": ...},
        {"exp": ...},
        {"exp": "2"},
        {"exp": True},
        {"exp": float("nan")},
        {"exp": 10**400},
        {"iat": ...},
        {"namespaces": "default"},
        {"namespaces": [{"namespace": "default"}]},
        {"namespaces": [{"namespace": "default", "role": "owner"}]},
        {"namespaces": [{"namespace": "default", "role": "org_admin"}]},
        {"namespaces": [{"namespace": "_system", "role": "viewer"}]},
        {"namespaces": [{"namespace": "default", "role": "viewer"}] * 65},
        {"parents": ["a"] * 33},
        {"parents": [""]},
        {"parents": [1]},
        {"org_admin": 1},
        {"read_scope": "all"},
        {"read_scope": "own_user"},
        {"read_scope": "own_session"},
        {"user_id": "a\x00b"},
        {"sub": "\ud800"},
    ],
)
def test_a_claim_that_is_missing_or_wrong_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ClaimsError):
        claims_from_payload(payload(**changes))


def test_a_payload_without_grants_names_no_namespace() -> None:
    claims = claims_from_payload(payload(namespaces=...))
    assert (claims.namespaces, claims.default_namespace, claims.role_on("default")) == ((), None, None)
