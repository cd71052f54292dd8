"""The tables of sign-in sessions and of links that begin one."""

from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_gateway.identity.domain.sessions import Session, SignInLink

_SESSIONS = Table.of(
    "sessions",
    quorum=True,
    sid="String",
    secret_digest="String",  # noqa: S106 - a column's type
    org="LowCardinality(String)",
    subject="String",
    method="LowCardinality(String)",
    created_at="DateTime64(3, 'UTC')",
    expires_at="DateTime64(3, 'UTC')",
    ended_at="Nullable(DateTime64(3, 'UTC'))",
    version="UInt64",
)

_LINKS = Table.of(
    "sign_in_links",
    quorum=True,
    digest="String",
    org="LowCardinality(String)",
    subject="String",
    created_at="DateTime64(3, 'UTC')",
    expires_at="DateTime64(3, 'UTC')",
    used_at="Nullable(DateTime64(3, 'UTC'))",
    version="UInt64",
)

_SESSION = """SELECT sid, secret_digest, org, subject, method, created_at, expires_at, ended_at, version
FROM sessions FINAL WHERE sid = {sid:String}"""
_LINK = """SELECT digest, org, subject, created_at, expires_at, used_at, version
FROM sign_in_links FINAL WHERE digest = {digest:String}"""


class SessionRepository:
    """Owns the `sessions` and `sign_in_links` tables; no other class names them."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def find(self, sid: str) -> Session | None:
        """Returns a session, an ended one too, or None for an unknown one."""
        rows = await self._ch.query(_SESSION, {"sid": sid}, settings=own_write_reads(self._ch))
        return next((Session(*row) for row in rows), None)

    async def put(self, session: Session) -> None:
        """Stores a session; its version is above that of any earlier row of it."""
        row = (
            session.sid,
            session.secret_digest,
            session.org,
            session.subject,
            session.method,
            session.created_at,
            session.expires_at,
            session.ended_at,
            session.version,
        )
        await self._ch.insert(_SESSIONS, [row])

    async def find_link(self, digest: str) -> SignInLink | None:
        """Returns a link, a used one too, or None for an unknown one."""
        rows = await self._ch.query(_LINK, {"digest": digest}, settings=own_write_reads(self._ch))
        return next((SignInLink(*row) for row in rows), None)

    async def put_link(self, link: SignInLink) -> None:
        """Stores a link; its version is above that of any earlier row of it."""
        row = (
            link.digest,
            link.org,
            link.subject,
            link.created_at,
            link.expires_at,
            link.used_at,
            link.version,
        )
        await self._ch.insert(_LINKS, [row])
