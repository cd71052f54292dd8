"""What a token made from another one may say: never more, never longer, and dead with any of its ancestors.

The one child that outlives its parent is that of a sign-in session's own token, which is replaced every few minutes: it
carries the session and ends with that.

Everything here is a function of its arguments. A child carries its parent's `jti` and the parent's own ancestors, so
that revoking any of them ends it on every service that knows the revocation, with no look-up of the chain.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from loom_common.auth.claims import (
    ALL_NAMESPACES,
    Claims,
    ClaimsError,
    NamespaceGrant,
    ReadScope,
    Role,
    claims_from_payload,
)
from loom_common.errors import AuthInsufficient, InvalidArgument
from loom_gateway.identity.domain.issue import Issue
from loom_gateway.identity.domain.principal import OPERATOR_SUBJECT, SERVICE_PREFIX
from loom_gateway.identity.domain.sessions import is_rights_holder, is_session_token
from loom_gateway.identity.domain.subjects import is_every_agent

MAX_DEPTH: Final = 8
"""Most ancestors of a token. Source: chosen; an agent that calls an agent that calls an agent needs three."""

_NARROWNESS: Final = {ReadScope.NAMESPACE: 0, ReadScope.OWN_USER: 1, ReadScope.OWN_SESSION: 2}


@dataclass(frozen=True, slots=True)
class TokenWish:
    """What a caller wants of a new token; what is absent follows the caller's own token.

    Attributes:
        namespaces: Grants in the token's order, at least one.
        ttl_s: Units: seconds of life; a shorter life of the parent wins, but for a session's own token.
        subject: Subject of the token; empty for the parent's.
        org_admin: Whether it administers the organisation.
        read_scope: What it reads inside its namespaces; None for as much as the parent.
        user_id: User that a narrower read scope stands for.
        session_id: Session that a narrower read scope stands for.
        consumer: Program that it is for; empty for the parent's.
    """

    namespaces: Sequence[NamespaceGrant]
    ttl_s: float
    subject: str = ""
    org_admin: bool = False
    read_scope: ReadScope | None = None
    user_id: str = ""
    session_id: str = ""
    consumer: str = ""


def delegate(parent: Claims, wish: TokenWish, issue: Issue, *, restricted: Collection[str] = ()) -> Claims:
    """Returns the claims of a token made from `parent`.

    Args:
        parent: Claims of the verified token that asks.
        wish: What is asked for.
        issue: Identifier and moment.
        restricted: Names, among the wished ones, of namespaces on which only a token that names them counts.

    Raises:
        AuthInsufficient: The wish is wider than the parent, or the chain of ancestors is at its bound.
        InvalidArgument: The wish contradicts itself.
        ValueError: The identifier is one of an ancestor's.
    """
    _check_chain(parent, issue)
    _check_grants(parent, wish.namespaces, restricted)
    if wish.org_admin and not parent.org_admin:
        raise AuthInsufficient("Only a token that administers the organisation can make one that does.")
    subject = wish.subject or parent.sub
    if subject != parent.sub and not parent.org_admin:
        raise AuthInsufficient("Only a token that administers the organisation can name another subject.")
    read_scope, user_id, session_id = _reads(parent, wish)
    behind = _behind(parent)
    # A session's own token ends within minutes and is replaced; what is made in the session ends with the session.
    ends = math.inf if is_session_token(parent) else parent.exp
    return _checked(
        Claims(
            sub=subject,
            org=parent.org,
            namespaces=tuple(wish.namespaces),
            jti=issue.jti,
            iat=issue.now_s,
            exp=min(issue.now_s + wish.ttl_s, ends),
            consumer=wish.consumer or parent.consumer,
            parents=(parent.jti, *parent.parents),
            creator=parent.sub if subject != parent.sub else "",
            parent_subjects=tuple(behind),
            parent_times=tuple(behind.values()),
            sid=parent.sid,
            user_id=user_id,
            session_id=session_id,
            read_scope=read_scope,
            org_admin=wish.org_admin,
        )
    )


def root_claims(org: str, wish: TokenWish, issue: Issue, *, creator: str = OPERATOR_SUBJECT) -> Claims:
    """Returns the claims of a token that has no ancestors.

    Args:
        org: Organisation of the token.
        wish: What is asked for.
        issue: Identifier and moment.
        creator: Subject that vouches for it, and whose end ends it: the operator, or every agent of a trust.

    Raises:
        InvalidArgument: The wish contradicts itself or names no subject.
    """
    if not wish.subject:
        raise InvalidArgument.of("subject", "is required from the operator, such as `sa:ci-bot`")
    return _checked(
        Claims(
            sub=wish.subject,
            org=org,
            namespaces=tuple(wish.namespaces),
            jti=issue.jti,
            iat=issue.now_s,
            exp=issue.now_s + wish.ttl_s,
            consumer=wish.consumer,
            creator=creator,
            user_id=wish.user_id,
            session_id=wish.session_id,
            read_scope=wish.read_scope or ReadScope.NAMESPACE,
            org_admin=wish.org_admin,
        )
    )


def role_in(claims: Claims, namespace: str, *, restricted: bool) -> Role | None:
    """Returns the role of a token on a namespace; on a restricted one only a grant that names it counts."""
    return claims.named_role(namespace) if restricted else claims.role_on(namespace)


def _behind(parent: Claims) -> dict[str, float]:
    """Returns the subjects that a child depends on, each with the time of the oldest token for which it stands.

    The creator of the parent is among them: ending that subject ends both. Times go along because a child may be issued
    after its ancestors' subject was ended, by a replica that did not know yet or whose clock runs ahead.
    """
    found: dict[str, float] = {}
    for subject, issued_at in parent.subjects_behind:
        found[subject] = min(issued_at, found.get(subject, issued_at))
    return found


def _check_chain(parent: Claims, issue: Issue) -> None:
    if issue.jti in (parent.jti, *parent.parents):
        raise ValueError("an identifier is never used twice: the new token would be its own ancestor")
    if len(parent.parents) >= MAX_DEPTH:
        raise AuthInsufficient(
            f"A token has at most {MAX_DEPTH} tokens before it; make this one from an earlier token.",
            detail={"reason": "chain_too_deep", "max_depth": MAX_DEPTH},
        )


def _check_grants(parent: Claims, grants: Sequence[NamespaceGrant], restricted: Collection[str]) -> None:
    for grant in grants:
        if grant.namespace == ALL_NAMESPACES:
            held = parent.wide_role
        else:
            held = role_in(parent, grant.namespace, restricted=grant.namespace in restricted)
        if held is None or held < grant.role:
            # The same answer whether or not the namespace exists: what is not the caller's is not told apart.
            raise AuthInsufficient(
                f"The token that asks is not {grant.role.label} on {grant.namespace!r}, so it cannot pass that on.",
                detail={"namespace": grant.namespace, "role": grant.role.label},
            )


def _reads(parent: Claims, wish: TokenWish) -> tuple[ReadScope, str, str]:
    """Returns read scope, user and session; what the parent is narrowed to stays."""
    scope = wish.read_scope or parent.read_scope
    if _NARROWNESS[scope] < _NARROWNESS[parent.read_scope]:
        raise AuthInsufficient(
            f"The token that asks reads `{parent.read_scope}`, so it cannot make one that reads `{scope}`.",
            detail={"read_scope": scope.value},
        )
    user_id = _kept("user_id", parent.user_id, wish.user_id, fixed=parent.is_narrow)
    session_id = _kept(
        "session_id", parent.session_id, wish.session_id, fixed=parent.read_scope is ReadScope.OWN_SESSION
    )
    return scope, user_id, session_id


def _kept(field: str, held: str, wished: str, *, fixed: bool) -> str:
    if fixed and wished and wished != held:
        raise AuthInsufficient(f"The token that asks reads one {field} only and cannot name another.")
    return held if fixed else wished or held


def _checked(claims: Claims) -> Claims:
    """Returns claims that a verifier will read as they are; whatever is signed must be good for its whole life."""
    if claims.sub.startswith(SERVICE_PREFIX):
        raise InvalidArgument.of("subject", f"must not begin with `{SERVICE_PREFIX}`, which names services")
    if is_every_agent(claims.sub) or is_rights_holder(claims.sub):
        raise InvalidArgument.of("subject", "stands for the tokens of others and holds none")
    names = [grant.namespace for grant in claims.namespaces]
    if not names:
        raise InvalidArgument.of("namespaces", "must name at least one")
    if len(set(names)) < len(names):
        raise InvalidArgument.of("namespaces", "names one twice")
    if claims.read_scope is ReadScope.OWN_USER and not claims.user_id:
        raise InvalidArgument.of("user_id", "is required beside `read_scope` own_user")
    if claims.read_scope is ReadScope.OWN_SESSION and not claims.session_id:
        raise InvalidArgument.of("session_id", "is required beside `read_scope` own_session")
    try:
        read = claims_from_payload(claims.to_payload())
    except ClaimsError as error:
        raise InvalidArgument(f"The token cannot say that: {error}.") from None
    assert read == claims, "a token must say what its claims say"
    return claims
