"""Which tokens a revocation ends."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.auth.claims import Claims
from loom_common.auth.revocations import Revocation, RevocationSet

CLAIMS = Claims(
    sub="sa:bot",
    org="acme",
    namespaces=(),
    jti="child",
    iat=100.0,
    exp=200.0,
    parents=("parent", "grandparent"),
    creator="ann@example.com",
    parent_subjects=("bob@example.com",),
    sid="session",
)


@pytest.mark.parametrize(
    "revocation",
    [
        Revocation("token", "child", 150, "acme"),
        Revocation("token", "parent", 150),
        Revocation("token", "grandparent", 150),
        Revocation("session", "session", 150, "acme"),
        Revocation("subject", "sa:bot", 150),
        Revocation("subject", "sa:bot", 100),
        Revocation("subject", "ann@example.com", 150, "acme"),
        Revocation("subject", "bob@example.com", 150),
    ],
)
def test_a_token_ends_with_itself_its_ancestors_its_session_and_its_subjects(revocation: Revocation) -> None:
    assert RevocationSet([revocation]).revoked(CLAIMS)


@pytest.mark.parametrize(
    "revocation",
    [
        Revocation("token", "another", 150),
        Revocation("token", "child", 150, "umbrella"),
        Revocation("token", "sa:bot", 150),
        Revocation("session", "child", 150),
        Revocation("subject", "sa:bot", 99.9),
        Revocation("subject", "sa:bot", 150, "umbrella"),
    ],
)
def test_a_token_outlives_what_concerns_others_or_came_before_it(revocation: Revocation) -> None:
    assert not RevocationSet([revocation]).revoked(CLAIMS)


def test_a_token_without_a_session_does_not_end_with_the_empty_one() -> None:
    assert not RevocationSet([Revocation("session", "", 150)]).revoked(replace(CLAIMS, sid=""))


def test_the_later_of_two_revocations_of_a_subject_counts_in_either_order() -> None:
    early, late = Revocation("subject", "sa:bot", 50), Revocation("subject", "sa:bot", 150)
    assert RevocationSet([early, late]).revoked(CLAIMS)
    assert RevocationSet([late, early]).revoked(CLAIMS)


def test_replacing_forgets_what_was_held() -> None:
    held = RevocationSet([Revocation("token", "child", 150)])
    held.replace([])
    assert not held.revoked(CLAIMS)
    assert len(held) == 0


@given(st.lists(st.sampled_from(["child", "parent", "x", "y"]), max_size=4))
def test_adding_never_makes_a_revoked_token_good(ids: list[str]) -> None:
    held = RevocationSet()
    was_revoked = False
    for one in ids:
        held.add(Revocation("token", one, 1.0))
        assert held.revoked(CLAIMS) >= was_revoked
        was_revoked = held.revoked(CLAIMS)
