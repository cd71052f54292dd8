"""What the running call's token may read and write inside its namespace."""

from dataclasses import replace
from typing import assert_never

from loom_common.auth.claims import Claims, ReadScope
from loom_common.call import current
from loom_common.errors import AuthInsufficient
from loom_memory.domain.memory import Filter, Identity


def own_identity(identity: Identity) -> Identity:
    """Returns the identity that the token may address: a narrow token's user and session fill absent ones.

    Raises:
        AuthInsufficient: It names another user or session than the token's own.
    """
    user_id, session_id = _own(identity.user_id or None, identity.session_id or None)
    return identity._replace(user_id=user_id or "", session_id=session_id or "")


def own_filter(wanted: Filter) -> Filter:
    """Returns the filter narrowed to what the token may read.

    Raises:
        AuthInsufficient: It names another user or session than the token's own.
    """
    user_id, session_id = _own(wanted.user_id, wanted.session_id)
    return replace(wanted, user_id=user_id, session_id=session_id)


def is_own(user_id: str, session_id: str) -> bool:
    """Says whether the running call's token may read what is filed under a user and a session."""
    try:
        return _own(user_id, session_id) == (user_id, session_id)
    except AuthInsufficient:
        return False


def narrowing(claims: Claims) -> tuple[str, str, str]:
    """Returns what tells calls of one body apart by their tokens: the read scope, and the user and session it fills in.

    A user or session that the token names and its read scope leaves alone is not part of it.
    """
    user_id = claims.user_id if claims.read_scope is not ReadScope.NAMESPACE else None
    session_id = claims.session_id if claims.read_scope is ReadScope.OWN_SESSION else None
    return claims.read_scope.value, user_id or "", session_id or ""


def actor() -> str:
    """Returns who the running call is by: `human:` or `process:` and the token's subject."""
    claims = current().claims
    if claims is None:
        return "process:memory"
    return f"{'process' if claims.sub.startswith('sa:') else 'human'}:{claims.sub}"


def _own(user_id: str | None, session_id: str | None) -> tuple[str | None, str | None]:
    """Returns the user and the session to address; None = whatever there is."""
    claims = current().claims
    if claims is None:
        return user_id, session_id
    match claims.read_scope:
        case ReadScope.NAMESPACE:
            return user_id, session_id
        case ReadScope.OWN_USER:
            if not claims.user_id:
                # The rows that name no user are everybody's, and nobody's own.
                raise AuthInsufficient("The token names no user whose rows are its own.", detail={"reason": "narrowed"})
            return _only("user_id", user_id, claims.user_id), session_id
        case ReadScope.OWN_SESSION:
            # A session belongs to a user: a token without one reads only rows that name none.
            return (
                _only("user_id", user_id, claims.user_id),
                _only("session_id", session_id, claims.session_id),
            )
    assert_never(claims.read_scope)


def _only(field: str, asked: str | None, own: str) -> str:
    if asked in (None, own):
        return own
    raise AuthInsufficient(
        f"The token reads and writes only what its own {field} holds; leave {field} out.",
        detail={"reason": "narrowed", "field": field},
    )
