"""Which sessions the running call's token may address."""

from loom_common.errors import InvalidArgument
from loom_memory.app.access import own_identity
from loom_memory.domain.memory import Identity
from loom_memory.sessions.domain.working import Session


def own_session(user_id: str, session_id: str) -> Session:
    """Returns the session to address: a narrow token's user and session fill absent ones. It may be of no name.

    Raises:
        AuthInsufficient: Another user or session is named than the token's own.
        InvalidArgument: The name holds what no name may.
    """
    own = own_identity(Identity("", user_id, session_id))
    for field, name in (("user_id", own.user_id), ("session_id", own.session_id)):
        if "\x00" in name:
            raise InvalidArgument.of(field, "must not hold NUL characters")
    return Session(own.user_id, own.session_id)


def named_session(user_id: str, session_id: str) -> Session:
    """Returns the session to address, which must have a name.

    Raises:
        AuthInsufficient: As for `own_session`.
        InvalidArgument: None is named.
    """
    session = own_session(user_id, session_id)
    if not session.session_id:
        raise InvalidArgument.of("session_id", "must name the session, or the token must")
    return session


def checked_text(field: str, text: str) -> str:
    """Returns a text without spaces around it.

    Raises:
        InvalidArgument: It holds NUL characters.
    """
    if "\x00" in text:
        raise InvalidArgument.of(field, "must not hold NUL characters")
    return text.strip()
