"""Whose profile sections and procedures the running call's token may read and write."""

from collections.abc import Collection

from loom_common.auth.claims import ReadScope
from loom_common.call import current
from loom_common.errors import AuthInsufficient
from loom_memory.app.access import own_identity
from loom_memory.domain.memory import Identity


def own_user_id(user_id: str) -> str:
    """Returns the user to write for, or to read one of: a narrow token's own where none is named.

    Raises:
        AuthInsufficient: Another user is named, or the token reads one session alone: these belong to no session.
    """
    identity = own_identity(Identity("", user_id, ""))
    if identity.session_id or _is_of_one_session():
        raise AuthInsufficient(
            "The token reads and writes only what its own session holds, and this belongs to no session.",
            detail={"reason": "narrowed"},
        )
    return identity.user_id


def readable_users(users: Collection[str] | None) -> Collection[str] | None:
    """Returns which of some users' rows the token may read; None is every user's, an empty one nobody's.

    What names no user is everybody's, and not a narrow token's own.
    """
    claims = current().claims
    if claims is None or claims.read_scope is ReadScope.NAMESPACE:
        return users
    own = claims.user_id if claims.read_scope is ReadScope.OWN_USER else None
    return frozenset({own}) if own and (users is None or own in users) else frozenset()


def _is_of_one_session() -> bool:
    claims = current().claims
    return claims is not None and claims.read_scope is ReadScope.OWN_SESSION
