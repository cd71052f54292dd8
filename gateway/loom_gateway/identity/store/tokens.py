"""The table of issued tokens: what each says, never the token."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from loom_common.auth.claims import Claims, NamespaceGrant, ReadScope, Role
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_gateway.identity.domain.tokens import TokenRecord

_TABLE = Table.of(
    "tokens",
    quorum=True,
    org="LowCardinality(String)",
    token_id="String",  # noqa: S106 - a column's type
    subject="String",
    label="String",
    namespaces="Array(String)",
    roles="Array(LowCardinality(String))",
    org_admin="Bool",
    read_scope="LowCardinality(String)",
    user_id="String",
    session_id="String",
    consumer="LowCardinality(String)",
    parents="Array(String)",
    parent_subjects="Array(String)",
    parent_times="Array(Float64)",
    creator="String",
    sid="String",
    made_by="String",
    created_at="DateTime64(3, 'UTC')",
    expires_at="DateTime64(3, 'UTC')",
)

_COLUMNS = ", ".join(_TABLE.column_names)

_ONE = f"""SELECT {_COLUMNS} FROM tokens
WHERE org = {{org:String}} AND token_id = {{token_id:String}} LIMIT 1"""  # noqa: S608 - column names

# Whose tokens are shown is the same rule as who may end them: `domain.tokens.may_revoke`.
_PAGE = f"""SELECT {_COLUMNS} FROM tokens
WHERE org = {{org:String}} AND (empty({{before:String}}) OR token_id < {{before:String}})
AND ({{ended_too:Bool}} OR expires_at > {{now:DateTime64(3, 'UTC')}})
AND ({{all:Bool}} OR token_id = {{caller:String}} OR has(parents, {{caller:String}})
     OR subject = {{subject:String}} OR made_by = {{subject:String}})
ORDER BY token_id DESC LIMIT {{limit:UInt32}}"""  # noqa: S608 - column names

_LIVE_OF = f"""SELECT {_COLUMNS} FROM tokens
WHERE org = {{org:String}} AND token_id > {{after:String}} AND expires_at > {{now:DateTime64(3, 'UTC')}}
AND (subject = {{subject:String}} OR (notEmpty({{prefix:String}}) AND startsWith(subject, {{prefix:String}})))
ORDER BY token_id LIMIT {{limit:UInt32}}"""  # noqa: S608 - column names

_NAMING = """SELECT DISTINCT subject FROM tokens
WHERE org = {org:String} AND expires_at > {now:DateTime64(3, 'UTC')} AND has(namespaces, {namespace:String})
ORDER BY subject LIMIT {limit:UInt32}"""


@dataclass(frozen=True, slots=True)
class TokenFilter:
    """Which tokens a listing scans.

    Attributes:
        org: Organisation to read.
        caller: Identifier of the caller's token: shown are it and what was made from it; empty for none.
        subject: Subject of the caller: shown are its tokens and those it made.
        all_of_org: Whether every token of the organisation is shown.
        ended_too: Whether expired ones are shown.
        now: The moment that decides what has expired.
    """

    org: str
    caller: str
    subject: str
    all_of_org: bool
    ended_too: bool
    now: datetime


class TokenRepository:
    """Owns the `tokens` table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def add(self, record: TokenRecord) -> None:
        """Stores what an issued token says."""
        await self._ch.insert(_TABLE, [_row(record)])

    async def find(self, org: str, token_id: str) -> TokenRecord | None:
        """Returns what is known of a token, or None for an unknown one."""
        rows = await self._ch.query(_ONE, {"org": org, "token_id": token_id}, settings=own_write_reads(self._ch))
        return next((_record(row) for row in rows.dicts()), None)

    async def page(self, shown: TokenFilter, *, before: str, limit: int) -> list[TokenRecord]:
        """Returns tokens, the newest first, from behind the identifier `before` (empty for the first page)."""
        parameters = {
            "org": shown.org,
            "before": before,
            "caller": shown.caller,
            "subject": shown.subject,
            "all": shown.all_of_org,
            "ended_too": shown.ended_too,
            "now": shown.now,
            "limit": limit,
        }
        rows = await self._ch.query(_PAGE, parameters, settings=own_write_reads(self._ch))
        return [_record(row) for row in rows.dicts()]

    async def live_of(
        self, org: str, subject: str, *, prefix: str, now: datetime, after: str, limit: int
    ) -> list[TokenRecord]:
        """Returns tokens that have not expired of a subject, and of all that begin with `prefix` where it is not empty.

        The oldest come first, from behind the identifier `after` (empty for the first ones).
        """
        parameters = {"org": org, "subject": subject, "prefix": prefix, "now": now, "after": after, "limit": limit}
        rows = await self._ch.query(_LIVE_OF, parameters, settings=own_write_reads(self._ch))
        return [_record(row) for row in rows.dicts()]

    async def subjects_naming(self, org: str, namespace: str, *, now: datetime, limit: int) -> list[str]:
        """Returns the subjects of tokens that have not expired and name a namespace, by subject."""
        parameters = {"org": org, "namespace": namespace, "now": now, "limit": limit}
        rows = await self._ch.query(_NAMING, parameters, settings=own_write_reads(self._ch))
        return [str(subject) for (subject,) in rows]


def _row(record: TokenRecord) -> tuple[object, ...]:
    claims = record.claims
    return (
        claims.org,
        claims.jti,
        claims.sub,
        record.label,
        [grant.namespace for grant in claims.namespaces],
        [grant.role.label for grant in claims.namespaces],
        claims.org_admin,
        claims.read_scope.value,
        claims.user_id,
        claims.session_id,
        claims.consumer,
        list(claims.parents),
        list(claims.parent_subjects),
        list(claims.parent_times),
        claims.creator,
        claims.sid,
        record.made_by,
        record.created_at,
        record.expires_at,
    )


def _record(row: dict[str, Any]) -> TokenRecord:  # the columns' own types, which no static type knows
    grants = zip(row["namespaces"], row["roles"], strict=True)
    claims = Claims(
        sub=row["subject"],
        org=row["org"],
        namespaces=tuple(NamespaceGrant(name, Role[role.upper()]) for name, role in grants),
        jti=row["token_id"],
        iat=row["created_at"].timestamp(),
        exp=row["expires_at"].timestamp(),
        consumer=row["consumer"],
        parents=tuple(row["parents"]),
        creator=row["creator"],
        parent_subjects=tuple(row["parent_subjects"]),
        parent_times=tuple(row["parent_times"]),
        sid=row["sid"],
        user_id=row["user_id"],
        session_id=row["session_id"],
        read_scope=ReadScope(row["read_scope"]),
        org_admin=bool(row["org_admin"]),
    )
    return TokenRecord(claims, row["label"], row["made_by"])
