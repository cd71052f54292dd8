"""Whose rows a pack reads: what its request asks for, and never more than its token may."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from loom_common.auth.claims import Claims, ReadScope
from loom_common.call import bind, current
from loom_common.errors import AuthInsufficient, InvalidArgument

_WIDTH: Final = {ReadScope.NAMESPACE: 0, ReadScope.OWN_USER: 1, ReadScope.OWN_SESSION: 2}


@dataclass(frozen=True, slots=True)
class Reach:
    """Whose rows are read, and for whom.

    Attributes:
        read_scope: Everybody's, a user's or a session's.
        user_id: That user, or the one that the pack is for; empty for none.
        session_id: That session, or the one that the pack is for; empty for none.
    """

    read_scope: ReadScope
    user_id: str
    session_id: str

    @property
    def is_narrow(self) -> bool:
        """Whether less is read than the namespace holds."""
        return self.read_scope is not ReadScope.NAMESPACE


def reach_of(claims: Claims | None, asked: ReadScope | None, user_id: str | None, session_id: str | None) -> Reach:
    """Returns whose rows are read.

    Args:
        claims: What the token says; None for a call without one, which reads the namespace.
        asked: What the request asks for; None for as much as the token may read. More than that is cut to it.
        user_id: The request's user; None for the token's.
        session_id: The request's session; None for the token's.

    Raises:
        AuthInsufficient: The token's own user or session is another.
        InvalidArgument: A user's or a session's rows are asked for, and nobody says whose.
    """
    held = claims.read_scope if claims is not None else ReadScope.NAMESPACE
    own_user, own_session = (claims.user_id, claims.session_id) if claims is not None else ("", "")
    user = own_user if user_id is None else user_id
    session = own_session if session_id is None else session_id
    # The rows that name no user are everybody's, and nobody's own: also not one session's of them.
    if held is not ReadScope.NAMESPACE and (user != own_user or (held is ReadScope.OWN_USER and not own_user)):
        raise _not_own("user_id")
    if held is ReadScope.OWN_SESSION and session != own_session:
        raise _not_own("session_id")
    found = max(asked or held, held, key=_WIDTH.__getitem__)
    if found is ReadScope.OWN_USER and not user:
        raise InvalidArgument.of("user_id", "must say whose rows are read, or the token must")
    if found is ReadScope.OWN_SESSION and not session:
        raise InvalidArgument.of("session_id", "must say which session's rows are read, or the token must")
    return Reach(found, user, session)


@contextmanager
def reading_as(reach: Reach) -> Iterator[None]:
    """Makes everything in the block read as a token of that reach would; what it spends is still the call's."""
    call = current()
    if call.claims is None or not reach.is_narrow:
        yield
        return
    claims = replace(call.claims, read_scope=reach.read_scope, user_id=reach.user_id, session_id=reach.session_id)
    with bind(replace(call, claims=claims)):
        yield


def _not_own(field: str) -> AuthInsufficient:
    return AuthInsufficient(
        f"The token reads only what its own {field} holds; leave {field} out.",
        detail={"reason": "narrowed", "field": field},
    )
