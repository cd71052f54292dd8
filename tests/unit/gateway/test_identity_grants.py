"""What grants let tokens say, whom trusts mean, and what sessions make of both."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.auth.claims import ALL_NAMESPACES, NamespaceGrant, Role, claims_from_payload
from loom_gateway.identity.domain.grants import MAX_GRANTS, Grant, Rights, excess, granted, rights_of
from loom_gateway.identity.domain.issue import Issue
from loom_gateway.identity.domain.names import NAME_PATTERN
from loom_gateway.identity.domain.sessions import ClientShare, Session, is_session_token, session_claims
from loom_gateway.identity.domain.subjects import SubjectKind, every_agent_of, subject_kind
from loom_gateway.identity.domain.trusts import home_names, is_public
from loom_gateway.signin.routes import own_path

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
RESTRICTED = {"c"}

namespaces = st.sampled_from(("a", "b", "c", ALL_NAMESPACES))
roles = st.sampled_from((Role.VIEWER, Role.WRITER, Role.ADMIN))


@st.composite
def held_grants(draw: st.DrawFn) -> Grant:
    namespace = draw(namespaces)
    role = draw(st.sampled_from(Role) if namespace == ALL_NAMESPACES else roles)
    return Grant("acme", "sa:bot", namespace, role, NOW, "svc:operator", removed=draw(st.booleans()))


grant_lists = st.lists(held_grants(), max_size=5, unique_by=lambda grant: grant.namespace)
wishes = st.lists(st.builds(NamespaceGrant, namespaces, roles), min_size=1, max_size=4, unique_by=lambda g: g.namespace)


@given(grant_lists, st.lists(st.sampled_from(("a", "c")), unique=True), wishes, st.booleans())
def test_a_token_says_no_more_than_a_bound_subject_holds(
    grants: list[Grant], owned: list[str], wish: list[NamespaceGrant], org_admin: bool
) -> None:
    rights = rights_of(grants, owned)
    if excess(rights, wish, org_admin=org_admin, restricted=RESTRICTED) is not None:
        assert grants  # a subject that never had a grant is bound by nothing
        return
    live = {grant.namespace: grant.role for grant in grants if not grant.removed}
    for asked in wish if grants else []:
        by_name = max(live.get(asked.namespace, 0), Role.ADMIN if asked.namespace in owned else 0)
        by_star = 0 if asked.namespace in RESTRICTED else live.get(ALL_NAMESPACES, 0)
        assert max(by_name, by_star) >= asked.role
    assert not (org_admin and grants) or live.get(ALL_NAMESPACES) is Role.ORG_ADMIN


@given(grant_lists, st.lists(st.sampled_from(("a", "c")), unique=True))
def test_what_a_subject_holds_is_what_its_own_token_may_say(grants: list[Grant], owned: list[str]) -> None:
    rights = rights_of(grants, owned)
    says = granted(rights)

    assert excess(rights, says, org_admin=rights.org_admin, restricted=RESTRICTED) is None
    assert len({grant.namespace for grant in says}) == len(says)


def test_a_token_that_cannot_name_everything_keeps_the_grant_on_all() -> None:
    rights = Rights({f"n{number:03}": Role.VIEWER for number in range(100)}, Role.WRITER, bound=True)
    says = granted(rights)

    assert (len(says), says[-1]) == (MAX_GRANTS, NamespaceGrant(ALL_NAMESPACES, Role.WRITER))


def test_who_is_disabled_holds_nothing() -> None:
    rights = rights_of([], ["a"], disabled=True)
    assert excess(rights, [NamespaceGrant("a", Role.VIEWER)], org_admin=False, restricted=()) is not None


@given(
    grant_lists, st.sampled_from((None, ClientShare("app", Role.VIEWER, 60), ClientShare("cli", Role.ADMIN, 60, True)))
)
def test_a_sessions_token_says_what_its_person_holds_and_a_programs_no_more_than_it_was_let(
    grants: list[Grant], client: ClientShare | None
) -> None:
    session = Session("sid1", "digest", "acme", "ann@acme.org", "link", NOW, NOW + timedelta(seconds=100))
    rights = rights_of(grants)
    claims = session_claims(session, rights, Issue("1", NOW.timestamp()), client=client)

    assert claims_from_payload(claims.to_payload()) == claims
    assert excess(rights, claims.namespaces, org_admin=claims.org_admin, restricted=RESTRICTED) is None
    assert claims.exp <= session.expires_at.timestamp()
    assert claims.sid == "sid1"
    if client is not None and not client.whole:
        assert all(grant.role <= client.role for grant in claims.namespaces)
        assert (claims.org_admin, is_session_token(claims)) == (False, False)
    else:
        assert (claims.org_admin, is_session_token(claims)) == (rights.org_admin, True)


@pytest.mark.parametrize(
    ("subject", "kind"),
    [
        ("ann@acme.org", SubjectKind.PERSON),
        ("sa:bot", SubjectKind.SERVICE_ACCOUNT),
        ("sa:ci:build:7", SubjectKind.AGENT),
        ("sa:ci:*", SubjectKind.AGENT),
        ("sa:", None),
        ("sa:*", None),
        ("sa:ci:", None),
        ("svc:memory", None),
        ("rights:ann@acme.org", None),
        ("ann", None),
        ("a b@acme.org", None),
        ("", None),
        ("a" * 241 + "@x", None),
        ("ann\x9b31m@acme.org", None),
        ("ann\u202e@acme.org", None),
        ("ann\u200b@acme.org", None),
        ("ann\u00a0@acme.org", None),
        ("アン@例え.jp", SubjectKind.PERSON),
    ],
)
def test_a_subject_is_a_person_a_service_account_or_an_agent(subject: str, kind: SubjectKind | None) -> None:
    assert subject_kind(subject) is kind


def test_every_agent_stands_for_the_agents_of_one_trust() -> None:
    assert every_agent_of("sa:ci:build") == "sa:ci:*"
    assert every_agent_of("sa:bot") == every_agent_of("ann@acme.org") == ""


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=200), st.text(min_size=1))
def test_every_agent_has_a_name_for_its_namespace_that_no_other_agent_has(agent: str, other: str) -> None:
    names, others = home_names("ci", agent), home_names("ci", other)

    assert all(NAME_PATTERN.fullmatch(name) for name in names)
    assert agent == other or names[-1] != others[-1]


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("fec0::1", False),
        ("localhost", False),
    ],
)
def test_only_an_address_of_the_public_network_is_public(address: str, public: bool) -> None:
    assert is_public(address) is public


@given(st.text(max_size=40))
def test_a_way_back_after_signing_in_leads_nowhere_else(text: str) -> None:
    for asked in (text, f"/{text}", f"//{text}", f"/\\{text}"):
        back = own_path(asked)
        assert back.startswith("/")
        assert not back.startswith(("//", "/\\"))
