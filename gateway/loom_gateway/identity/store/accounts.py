"""The table of people and programs."""

from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_gateway.identity.domain.orgs import Account

_TABLE = Table.of(
    "accounts",
    quorum=True,
    org="LowCardinality(String)",
    subject="String",
    display_name="String",
    email="String",
    disabled="Bool",
    created_at="DateTime64(3, 'UTC')",
    updated_at="DateTime64(3, 'UTC')",
    updated_by="String",
    version="UInt64",
)

_COLUMNS = "org, subject, display_name, email, disabled, created_at, updated_at, updated_by, version"
_ONE = f"""SELECT {_COLUMNS} FROM accounts FINAL
WHERE org = {{org:String}} AND subject = {{subject:String}}"""  # noqa: S608 - column names
_PAGE = f"""SELECT {_COLUMNS} FROM accounts FINAL
WHERE org = {{org:String}} AND subject > {{after:String}} ORDER BY subject LIMIT {{limit:UInt32}}"""  # noqa: S608 - column names


class AccountRepository:
    """Owns the `accounts` table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def find(self, org: str, subject: str) -> Account | None:
        """Returns what is known of a subject, or None where nothing is."""
        rows = await self._ch.query(_ONE, {"org": org, "subject": subject}, settings=own_write_reads(self._ch))
        return next((Account(*row) for row in rows), None)

    async def page(self, org: str, *, after: str, limit: int) -> list[Account]:
        """Returns accounts by subject, from behind `after`."""
        rows = await self._ch.query(
            _PAGE, {"org": org, "after": after, "limit": limit}, settings=own_write_reads(self._ch)
        )
        return [Account(*row) for row in rows]

    async def put(self, account: Account) -> None:
        """Stores an account; its version is above that of any earlier row of it."""
        row = (
            account.org,
            account.subject,
            account.display_name,
            account.email,
            account.disabled,
            account.created_at,
            account.updated_at,
            account.updated_by,
            account.version,
        )
        await self._ch.insert(_TABLE, [row])
