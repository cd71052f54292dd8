"""Who is signed in, and what programs get in their name: sign-in as the OAuth endpoints see it."""

from typing import Final
from urllib.parse import quote

from starlette.requests import Request

from loom_common.auth.claims import Role
from loom_common.errors import TokenRevoked
from loom_gateway.identity.app.sessions import SessionDesk
from loom_gateway.identity.domain.sessions import ClientShare
from loom_gateway.oauth.people import AccessToken, Grant, Person
from loom_gateway.signin.cookies import session_cookie
from loom_gateway.signin.routes import SIGN_IN_PATH

# Source: chosen; a program refreshes its token, and the end of its grant reaches every service within two seconds.
_LIFE_S: Final = 3_600


class SignedInPeople:
    """People with sessions; what each lets a program do is a session of the program's own.

    Args:
        sessions: The sessions.
        prefix: Path under which a proxy publishes the gateway.
    """

    def __init__(self, sessions: SessionDesk, prefix: str = "") -> None:
        self._sessions = sessions
        self._prefix = prefix

    async def who(self, request: Request) -> Person | None:
        """See `People.who`."""
        found = await self._sessions.of_cookie(session_cookie(request))
        return None if found is None else Person(found.session.org, found.session.subject, found.session.sid)

    def sign_in_url(self, return_to: str) -> str:
        """See `People.sign_in_url`."""
        return f"{self._prefix}{SIGN_IN_PATH}?return_to={quote(return_to, safe='')}"

    async def open(self, person: Person, *, client: str, role: Role) -> Grant:
        """See `People.open`."""
        session = await self._sessions.open_client(person.org, person.subject)
        return Grant(session.sid, person.org, person.subject, client, role)

    async def token(self, grant: Grant) -> AccessToken:
        """See `People.token`."""
        session = await self._sessions.live(grant.id)
        if session is None or (session.org, session.subject) != (grant.org, grant.subject):
            raise TokenRevoked("What the person let this program do has ended.")
        share = ClientShare(grant.client[:128], grant.role, _LIFE_S)
        return AccessToken(await self._sessions.client_token(session, share), _LIFE_S)

    async def end(self, grant: Grant) -> None:
        """See `People.end`."""
        session = await self._sessions.live(grant.id)
        if session is not None:
            await self._sessions.close(session)
