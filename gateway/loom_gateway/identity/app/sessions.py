"""Sign-in sessions: begun by a link or an identity provider, known by a cookie, exchanged for short tokens."""

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import cachetools
import structlog

from loom_common.auth.claims import Claims
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.conditional_writes import claim_name
from loom_common.errors import AuthInsufficient, TokenRevoked, Unauthenticated
from loom_common.ids import IdSource
from loom_gateway.identity.app.listing import whole_ms
from loom_gateway.identity.app.minting import Mint
from loom_gateway.identity.app.revocations import RevocationFeed
from loom_gateway.identity.app.rights import RightsReader
from loom_gateway.identity.app.session_end import SessionEnd
from loom_gateway.identity.domain.sessions import ClientShare, Session, SignInLink, session_claims
from loom_gateway.identity.domain.subjects import SubjectKind, check_subject
from loom_gateway.identity.store.sessions import SessionRepository

BROWSER_METHODS: Final = frozenset({"link", "oidc"})
"""How sessions begin that a browser's cookie carries."""

_SECRET_BYTES: Final = 32
# A token that is handed out has at least this long to live. Source: the longest deadline of a usual call, 60 s.
_MIN_LEFT_S: Final = 90.0
_MAX_KEPT: Final = 4096
_NO_SESSION: Final = "You are not signed in, or your session has ended. Sign in again."

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session, and the secret that its cookie carries."""

    session: Session
    secret: str = field(repr=False)

    @property
    def cookie(self) -> str:
        """Value of the cookie."""
        return f"{self.session.sid}.{self.secret}"

    @property
    def csrf_token(self) -> str:
        """What a page of ours shows beside the cookie, and no other page can know."""
        return csrf_token(self.secret)


def csrf_token(secret: str) -> str:
    """Returns the token that goes with a cookie's secret."""
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()


class SessionDesk:
    """Begins sessions, knows them by their cookies and makes their tokens."""

    def __init__(
        self,
        sessions: SessionRepository,
        rights: RightsReader,
        mint: Mint,
        feed: RevocationFeed,
        end: SessionEnd,
        writes: ConditionalWrites,
        clock: Clock,
        new_id: IdSource,
        *,
        life: timedelta,
    ) -> None:
        self._sessions = sessions
        self._rights = rights
        self._mint = mint
        self._feed = feed
        self._end = end
        self._writes = writes
        self._clock = clock
        self._new_id = new_id
        self._life = life
        self._known: cachetools.LRUCache[str, Session] = cachetools.LRUCache(_MAX_KEPT)
        self._tokens: cachetools.LRUCache[str, tuple[Claims, str]] = cachetools.LRUCache(_MAX_KEPT)

    async def make_link(self, org: str, subject: str, life: timedelta) -> tuple[str, SignInLink]:
        """Makes a link that signs a person in once; returns its secret, which is kept nowhere.

        Raises:
            InvalidArgument: The subject is no person.
        """
        if check_subject("subject", subject) is not SubjectKind.PERSON:
            raise AuthInsufficient("Only people sign in; programs hold tokens.")
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        now = whole_ms(self._clock.now())
        link = SignInLink(_digest(secret), org, subject, now, now + life, version=1)
        await self._sessions.put_link(link)
        return secret, link

    async def use_link(self, secret: str) -> SignedIn:
        """Begins the session that a link stands for.

        Raises:
            Unauthenticated: There is no such link, or it is too old or was used.
            Conflict: It is being used.
            AuthInsufficient: The person holds nothing.
        """
        digest = _digest(secret)
        await self._good_link(digest)  # before anything is written for who only guesses
        # Two who follow it at once: one of them gets in.
        async with self._writes.hold(claim_name("sign_in_link", digest)) as hold:
            link, now = await self._good_link(digest)
            await self._sessions.put_link(replace(link, used_at=now, version=hold.version_after(link.version)))
            await hold.confirm()
        return await self.begin(link.org, link.subject, "link")

    async def begin(self, org: str, subject: str, method: str) -> SignedIn:
        """Begins a session of a person whose identity was proved.

        Raises:
            AuthInsufficient: The person holds nothing in the organisation.
        """
        rights = await self._rights.of(org, subject)
        if rights.disabled or not (rights.named or rights.wide):
            raise AuthInsufficient("You hold nothing here yet. Ask an administrator for a role on a namespace.")
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        now = whole_ms(self._clock.now())
        session = Session(
            self._new_id(), _digest(secret), org, subject, method, now, whole_ms(now + self._life), version=1
        )
        await self._sessions.put(session)
        _log.info("signed_in", org=org, subject=subject, method=method, sid=session.sid)
        return SignedIn(session, secret)

    async def of_cookie(self, cookie: str, *, methods: Collection[str] = BROWSER_METHODS) -> SignedIn | None:
        """Returns the session that a cookie stands for, or None where it has ended or never was one.

        Args:
            cookie: Its value, or what a program refreshes with.
            methods: How it may have begun: what one holds is no cookie of the other.
        """
        sid, _, secret = cookie.partition(".")
        if not sid or not secret or len(cookie) > 256:
            return None
        session = await self.live(sid)
        if session is None or session.method not in methods:
            return None
        if not hmac.compare_digest(session.secret_digest, _digest(secret)):
            return None
        return SignedIn(session, secret)

    async def live(self, sid: str) -> Session | None:
        """Returns a session that has not ended, on this replica or another."""
        session = self._known.get(sid)
        if session is None:
            session = await self._sessions.find(sid)
            if session is None:
                return None
            self._known[sid] = session
        if session.ended_at is not None or session.expires_at <= self._clock.now():
            return None
        return None if self._is_ended(session) else session

    async def token(self, session: Session) -> str:
        """Returns a token of a session that says what its person holds now; the same one for some minutes.

        Raises:
            Unauthenticated: The session has ended.
            AuthInsufficient: The person may not come in any more.
        """
        now_s = self._clock.now().timestamp()
        kept = self._tokens.get(session.sid)
        if kept is not None and self._is_good(kept[0], now_s, session):
            return kept[1]
        issued = await self._issue(session, None)
        self._tokens[session.sid] = issued
        return issued[1]

    async def client_token(self, session: Session, client: ClientShare) -> str:
        """Returns a token for a program that a person let in, under a session of the program's own.

        Raises:
            TokenRevoked: The session has ended.
            AuthInsufficient: The person holds nothing any more.
        """
        return (await self._issue(session, client))[1]

    async def open_client(self, org: str, subject: str) -> Session:
        """Begins the session under which a program acts for a person; it is ended apart from the person's own."""
        return (await self.begin(org, subject, "client")).session

    async def close(self, session: Session) -> None:
        """Ends a session and all that was made in it."""
        await self._end.close(session, by=session.subject)
        self._known.pop(session.sid, None)
        self._tokens.pop(session.sid, None)

    async def _good_link(self, digest: str) -> tuple[SignInLink, datetime]:
        """Returns a link that may be used, and the moment."""
        link = await self._sessions.find_link(digest)
        now = whole_ms(self._clock.now())
        if link is None or link.used_at is not None or link.expires_at <= now:
            raise Unauthenticated("The link is too old or was used. Make another with `loom sign-in-link`.")
        return link, now

    async def _issue(self, session: Session, client: ClientShare | None) -> tuple[Claims, str]:
        if await self.live(session.sid) is None:
            raise TokenRevoked(_NO_SESSION) if client else Unauthenticated(_NO_SESSION)
        issue = self._mint.issue()
        rights = await self._rights.of(session.org, session.subject)
        if rights.disabled or not (rights.named or rights.wide):
            raise AuthInsufficient("You hold nothing here any more. Ask an administrator for a role on a namespace.")
        issued = self._mint.own(session_claims(session, rights, issue, client=client))
        return issued.record.claims, issued.token

    def _is_good(self, claims: Claims, now_s: float, session: Session) -> bool:
        """Returns whether a token may be handed out once more: it has long enough to live, and nothing ended it."""
        left_s = claims.exp - now_s
        if left_s <= 0 or (left_s < _MIN_LEFT_S and session.expires_at.timestamp() > claims.exp):
            return False
        return not self._feed.has_ended(claims)

    def _is_ended(self, session: Session) -> bool:
        """Returns whether the session, or its person, was ended: by revocations, which reach every replica at once."""
        begun_s = session.created_at.timestamp()
        probe = Claims(session.subject, session.org, (), session.sid, begun_s, begun_s, sid=session.sid)
        return self._feed.has_ended(probe)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
