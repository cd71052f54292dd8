"""Ending sign-in sessions, and all that was made in them."""

from dataclasses import replace

from loom_common.clock import Clock
from loom_common.errors import NotFound
from loom_gateway.identity.app.ending import TokenEnder
from loom_gateway.identity.app.listing import whole_ms
from loom_gateway.identity.domain.principal import Principal
from loom_gateway.identity.domain.sessions import Session
from loom_gateway.identity.store.sessions import SessionRepository


class SessionEnd:
    """Ends sessions."""

    def __init__(self, sessions: SessionRepository, ender: TokenEnder, clock: Clock) -> None:
        self._sessions = sessions
        self._ender = ender
        self._clock = clock

    async def end(self, principal: Principal, asked_org: str | None, sid: str) -> float:
        """Ends a session; returns when, of the first time where it was ended before.

        Returns:
            Units: seconds since 1970, UTC.

        Raises:
            NotFound: There is no such session, or it is not the caller's to end.
        """
        org = principal.org(asked_org)
        session = await self._sessions.find(sid)
        own = session is not None and session.org == org and session.subject == principal.subject
        if session is None or session.org != org or not (own or principal.is_org_admin):
            raise NotFound("There is no such session among those that you may end.")
        return await self.close(session, by=principal.subject)

    async def close(self, session: Session, *, by: str) -> float:
        """Ends a session that was looked up; returns when. Units: seconds since 1970, UTC."""
        # The revocation first: what is told to every service counts, the row only says so to people.
        ended_at_s = await self._ender.session(session.org, session.sid, by=by)
        if session.ended_at is not None:
            return session.ended_at.timestamp()
        now = whole_ms(self._clock.now())
        await self._sessions.put(replace(session, ended_at=now, version=session.version + 1))
        return ended_at_s
