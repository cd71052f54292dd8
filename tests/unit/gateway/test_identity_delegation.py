from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.auth.claims import ALL_NAMESPACES, Claims, NamespaceGrant, ReadScope, Role, claims_from_payload
from loom_common.auth.revocations import Revocation, RevocationSet
from loom_common.errors import AuthInsufficient, InvalidArgument
from loom_gateway.identity.domain.delegation import MAX_DEPTH, TokenWish, delegate, role_in, root_claims
from loom_gateway.identity.domain.issue import Issue

NOW_S = 1_800_000_000.0
NAMES = ("a", "b", "c")
RESTRICTED = ("c",)

grants = st.lists(
    st.builds(
        NamespaceGrant,
        st.sampled_from((*NAMES, ALL_NAMESPACES)),
        st.sampled_from((Role.VIEWER, Role.WRITER, Role.ADMIN)),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda grant: grant.namespace,
)
subjects = st.sampled_from(("ada@example.org", "sa:bot", "sa:ci:agent"))
rows = st.tuples(st.sampled_from(("u1", "u2", "")), st.sampled_from(("s1", "s2", "")))


@st.composite
def parents(draw: st.DrawFn) -> Claims:
    scope = draw(st.sampled_from(ReadScope))
    user_id, session_id = draw(rows)
    return Claims(
        sub=draw(subjects),
        org="acme",
        namespaces=tuple(draw(grants)),
        jti="parent",
        iat=NOW_S - 100,
        exp=NOW_S + draw(st.integers(1, 100_000)),
        parents=tuple(f"p{n}" for n in range(draw(st.integers(0, MAX_DEPTH - 1)))),
        parent_subjects=tuple(draw(st.lists(subjects, max_size=3, unique=True))),
        creator=draw(st.sampled_from(("", "root@example.org"))),
        sid=draw(st.sampled_from(("", "sid1"))),
        user_id=user_id or ("u1" if scope is ReadScope.OWN_USER else ""),
        session_id=session_id or ("s1" if scope is ReadScope.OWN_SESSION else ""),
        read_scope=scope,
        org_admin=draw(st.booleans()),
    )


@st.composite
def wishes(draw: st.DrawFn) -> TokenWish:
    user_id, session_id = draw(rows)
    return TokenWish(
        namespaces=draw(grants),
        ttl_s=draw(st.integers(1, 200_000)),
        subject=draw(st.sampled_from(("", "ada@example.org", "sa:bot", "sa:other"))),
        org_admin=draw(st.booleans()),
        read_scope=draw(st.sampled_from((None, *ReadScope))),
        user_id=user_id,
        session_id=session_id,
    )


def made_from(parent: Claims, wish: TokenWish, jti: str = "child") -> Claims | None:
    """Returns the child, or None where the wish was refused."""
    try:
        return delegate(parent, wish, Issue(jti, NOW_S), restricted=RESTRICTED)
    except (AuthInsufficient, InvalidArgument):
        return None


def reads(claims: Claims, user_id: str, session_id: str) -> bool:
    """Whether a token's read scope lets a row of that user and session through."""
    match claims.read_scope:
        case ReadScope.NAMESPACE:
            return True
        case ReadScope.OWN_USER:
            return user_id == claims.user_id
        case ReadScope.OWN_SESSION:
            return session_id == claims.session_id and (not claims.user_id or user_id == claims.user_id)


@given(parents(), wishes())
def test_a_child_never_does_more_than_its_parent(parent: Claims, wish: TokenWish) -> None:
    child = made_from(parent, wish)
    if child is None:
        return

    assert child.org == parent.org
    assert child.org_admin <= parent.org_admin
    assert (child.wide_role or 0) <= (parent.wide_role or 0)
    for name in (*NAMES, "elsewhere"):
        restricted = name in RESTRICTED
        held = role_in(parent, name, restricted=restricted) or 0
        assert (role_in(child, name, restricted=restricted) or 0) <= held
    assert child.sub == parent.sub or parent.org_admin


@given(parents(), wishes(), rows)
def test_a_child_never_reads_a_row_that_its_parent_does_not(
    parent: Claims, wish: TokenWish, row: tuple[str, str]
) -> None:
    child = made_from(parent, wish)

    assert child is None or not reads(child, *row) or reads(parent, *row)


@given(parents(), wishes())
def test_a_child_never_lives_longer_than_its_parent(parent: Claims, wish: TokenWish) -> None:
    child = made_from(parent, wish)

    assert child is None or child.exp == min(parent.exp, NOW_S + wish.ttl_s)


@given(parents(), st.lists(wishes(), min_size=1, max_size=4))
def test_a_descendant_dies_with_each_of_its_ancestors(parent: Claims, chain: list[TokenWish]) -> None:
    line = [parent]
    for depth, wish in enumerate(chain):
        child = made_from(line[-1], wish, f"child{depth}")
        if child is None:
            break
        line.append(child)
    youngest = line[-1]

    for ancestor in line:
        assert RevocationSet([Revocation("token", ancestor.jti, NOW_S + 1, "acme")]).revoked(youngest)
        for subject in {ancestor.sub, ancestor.creator} - {""}:
            assert RevocationSet([Revocation("subject", subject, NOW_S + 1, "acme")]).revoked(youngest)
        if ancestor.sid:
            assert RevocationSet([Revocation("session", ancestor.sid, NOW_S + 1, "acme")]).revoked(youngest)
    for held in parent.parents:
        assert RevocationSet([Revocation("token", held, NOW_S + 1)]).revoked(youngest)


@given(parents(), st.lists(wishes(), min_size=1, max_size=4), st.integers(0, 100))
def test_a_subject_that_was_ended_takes_what_was_made_from_its_tokens_afterwards_too(
    parent: Claims, chain: list[TokenWish], late_s: int
) -> None:
    line = [parent]
    for depth, wish in enumerate(chain):
        try:
            # Each by a replica whose clock runs further ahead than that of the one before.
            line.append(delegate(line[-1], wish, Issue(f"child{depth}", NOW_S + depth * late_s), restricted=RESTRICTED))
        except (AuthInsufficient, InvalidArgument):
            break

    for place, ancestor in enumerate(line):
        for subject in {ancestor.sub, ancestor.creator} - {""}:
            ended = RevocationSet([Revocation("subject", subject, ancestor.iat, "acme")])
            assert all(ended.revoked(token) for token in line[place:])


@given(parents(), st.lists(wishes(), min_size=1, max_size=12))
def test_a_chain_has_no_cycle_and_a_bound(parent: Claims, chain: list[TokenWish]) -> None:
    line = [parent]
    for depth, wish in enumerate(chain):
        child = made_from(line[-1], wish, f"child{depth}")
        if child is not None:
            assert child.parents == (line[-1].jti, *line[-1].parents)
            line.append(child)

    for token in line:
        assert len({token.jti, *token.parents}) == len(token.parents) + 1
        assert len(token.parents) <= MAX_DEPTH
        assert len(token.parent_subjects) == len(token.parent_times) or token is parent
    for token in line:
        with pytest.raises(ValueError, match="twice"):
            delegate(line[-1], chain[0], Issue(token.jti, NOW_S), restricted=RESTRICTED)


@given(parents(), wishes(), st.booleans())
def test_only_what_is_made_in_a_session_outlives_its_parent_and_it_ends_with_the_session(
    parent: Claims, wish: TokenWish, first_party: bool
) -> None:
    session = replace(parent, jti="session-1" if first_party else "parent", sid="sid1")
    child = made_from(session, wish)
    if child is None:
        return
    grandchild = made_from(child, TokenWish(child.namespaces, ttl_s=1_000_000), "grandchild")

    assert child.exp == (NOW_S + wish.ttl_s if first_party else min(NOW_S + wish.ttl_s, session.exp))
    assert child.sid == "sid1"
    assert grandchild is None or grandchild.exp <= child.exp
    for token in (child, grandchild):
        assert token is None or RevocationSet([Revocation("session", "sid1", NOW_S - 1, "acme")]).revoked(token)


@given(parents(), wishes())
def test_what_is_signed_reads_back_as_it_was_made(parent: Claims, wish: TokenWish) -> None:
    child = made_from(parent, wish)

    assert child is None or claims_from_payload(child.to_payload()) == child


@given(parents())
def test_the_same_again_is_always_granted(parent: Claims) -> None:
    wish = TokenWish(parent.namespaces, ttl_s=1_000_000, org_admin=parent.org_admin)
    again = delegate(parent, wish, Issue("child", NOW_S), restricted=RESTRICTED)

    assert (again.namespaces, again.exp, again.read_scope) == (parent.namespaces, parent.exp, parent.read_scope)
    assert again.parents == (parent.jti, *parent.parents)


WRITER = Claims(
    sub="sa:bot",
    org="acme",
    namespaces=(NamespaceGrant("a", Role.WRITER),),
    jti="parent",
    iat=NOW_S - 1,
    exp=NOW_S + 3600,
)
ADMIN = replace(WRITER, sub="ada@example.org", namespaces=(NamespaceGrant(ALL_NAMESPACES, Role.ADMIN),), org_admin=True)


def viewer_of(*names: str, **more: object) -> TokenWish:
    return replace(TokenWish([NamespaceGrant(name, Role.VIEWER) for name in names], ttl_s=60), **more)  # type: ignore[arg-type]  # any field


@pytest.mark.parametrize(
    ("parent", "wish"),
    [
        (WRITER, viewer_of("b")),
        (WRITER, viewer_of(ALL_NAMESPACES)),
        (WRITER, TokenWish([NamespaceGrant("a", Role.ADMIN)], ttl_s=60)),
        (WRITER, viewer_of("a", org_admin=True)),
        (WRITER, viewer_of("a", subject="sa:other")),
        (ADMIN, viewer_of("c")),
        (replace(WRITER, read_scope=ReadScope.OWN_USER, user_id="u1"), viewer_of("a", read_scope=ReadScope.NAMESPACE)),
        (replace(WRITER, read_scope=ReadScope.OWN_USER, user_id="u1"), viewer_of("a", user_id="u2")),
        (replace(WRITER, read_scope=ReadScope.OWN_SESSION, session_id="s1"), viewer_of("a", session_id="s2")),
        (replace(WRITER, parents=tuple("12345678")), viewer_of("a")),
    ],
    ids=[
        "another-namespace",
        "org-wide",
        "larger-role",
        "org-admin",
        "another-subject",
        "restricted-without-being-named",
        "wider-reads",
        "another-user",
        "another-session",
        "too-deep",
    ],
)
def test_a_wider_wish_is_refused(parent: Claims, wish: TokenWish) -> None:
    with pytest.raises(AuthInsufficient):
        delegate(parent, wish, Issue("child", NOW_S), restricted=RESTRICTED)


@pytest.mark.parametrize(
    "wish",
    [
        viewer_of(),
        viewer_of("a", read_scope=ReadScope.OWN_USER),
        viewer_of("a", read_scope=ReadScope.OWN_SESSION, user_id="u1"),
        viewer_of("a", user_id="line\nbreak"),
        viewer_of("a", subject="svc:memory"),
        viewer_of("a", subject="sa:ci:*"),
        viewer_of("a", subject="rights:ann@acme.org"),
        viewer_of("a", "a"),
    ],
    ids=[
        "no-namespace",
        "no-user",
        "no-session",
        "control-character",
        "a-service",
        "every-agent",
        "a-name-of-sessions",
        "named-twice",
    ],
)
def test_a_wish_that_contradicts_itself_is_refused(wish: TokenWish) -> None:
    with pytest.raises(InvalidArgument):
        delegate(ADMIN, wish, Issue("child", NOW_S))


def test_an_admin_may_name_another_subject_and_stands_behind_its_token() -> None:
    child = delegate(ADMIN, viewer_of("a", subject="sa:new"), Issue("child", NOW_S))

    assert (child.sub, child.creator, child.parent_subjects) == ("sa:new", ADMIN.sub, (ADMIN.sub,))


def test_a_narrowed_parent_narrows_a_child_that_says_nothing() -> None:
    parent = replace(WRITER, read_scope=ReadScope.OWN_SESSION, user_id="u1", session_id="s1")
    child = delegate(parent, viewer_of("a"), Issue("child", NOW_S))

    assert (child.read_scope, child.user_id, child.session_id) == (ReadScope.OWN_SESSION, "u1", "s1")


def test_the_operators_token_has_no_ancestors_and_says_who_made_it() -> None:
    root = root_claims("acme", viewer_of("a", subject="sa:new"), Issue("root", NOW_S))

    assert (root.parents, root.creator, root.exp) == ((), "svc:operator", NOW_S + 60)


def test_the_operator_has_to_name_a_subject() -> None:
    with pytest.raises(InvalidArgument):
        root_claims("acme", viewer_of("a"), Issue("root", NOW_S))
