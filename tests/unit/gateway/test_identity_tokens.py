from dataclasses import replace

import pytest

from loom_common.auth.claims import Claims, NamespaceGrant, Role
from loom_common.auth.revocations import Revocation
from loom_gateway.identity.domain.principal import Principal
from loom_gateway.identity.domain.tokens import TokenRecord, may_revoke

TOKEN = Claims(
    sub="sa:bot",
    org="acme",
    namespaces=(NamespaceGrant("a", Role.VIEWER),),
    jti="token",
    iat=100.0,
    exp=200.0,
    parents=("parent", "grandparent"),
    parent_subjects=("sa:lead",),
)
RECORD = TokenRecord(TOKEN, "", made_by="ada@example.org")
STRANGER = replace(TOKEN, sub="sa:other", jti="other", parents=())


@pytest.mark.parametrize(
    "claims",
    [
        TOKEN,
        replace(STRANGER, jti="parent"),
        replace(STRANGER, jti="grandparent"),
        replace(STRANGER, sub="ada@example.org"),
        replace(STRANGER, sub="sa:bot"),
        replace(STRANGER, org_admin=True),
        None,
    ],
    ids=["itself", "parent", "ancestor", "its-maker", "its-subject", "org-admin", "operator"],
)
def test_those_behind_a_token_may_end_it(claims: Claims | None) -> None:
    assert may_revoke(Principal(claims), RECORD)


@pytest.mark.parametrize(
    "claims",
    [
        STRANGER,
        replace(STRANGER, parents=("token",)),
        replace(STRANGER, sub="sa:lead"),
        replace(STRANGER, org="other", org_admin=True),
        replace(TOKEN, org="other"),
    ],
    ids=["stranger", "its-child", "subject-of-an-ancestor", "admin-of-another-org", "same-token-in-another-org"],
)
def test_others_may_not_end_it(claims: Claims) -> None:
    assert not may_revoke(Principal(claims), RECORD)


def revoked_at(*revocations: Revocation) -> float | None:
    return RECORD.revoked_at_s({each.id: [each] for each in revocations})


def test_a_token_was_ended_when_the_first_thing_that_it_depends_on_was() -> None:
    own, parents = Revocation("token", "token", 150.0, "acme"), Revocation("token", "parent", 140.0, "acme")

    assert revoked_at(own) == 150.0
    assert revoked_at(own, parents) == 140.0


def test_what_ends_something_else_does_not_end_it() -> None:
    assert revoked_at() is None
    assert revoked_at(Revocation("token", "token", 150.0, "other")) is None
    assert revoked_at(Revocation("subject", "sa:bot", 50.0, "acme")) is None
    assert revoked_at(Revocation("session", "token", 150.0, "acme")) is None
