"""The table of trusts."""

from typing import Any

from loom_common.auth.claims import Role
from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_gateway.identity.domain.trusts import Trust

_TABLE = Table.of(
    "trusts",
    quorum=True,
    org="LowCardinality(String)",
    name="String",
    issuer="String",
    audience="String",
    jwks_url="String",
    jwks="String",
    claim_names="Array(String)",
    claim_values="Array(Array(String))",
    agent_claim="String",
    role="LowCardinality(String)",
    token_ttl_s="UInt32",  # noqa: S106 - a column's type
    by_operator="Bool",
    updated_at="DateTime64(3, 'UTC')",
    updated_by="String",
    tombstoned_at="Nullable(DateTime64(3, 'UTC'))",
    version="UInt64",
)

_COLUMNS = ", ".join(_TABLE.column_names)
_ONE = f"""SELECT {_COLUMNS} FROM trusts FINAL
WHERE org = {{org:String}} AND name = {{name:String}}"""  # noqa: S608 - column names
_PAGE = f"""SELECT {_COLUMNS} FROM trusts FINAL
WHERE org = {{org:String}} AND name > {{after:String}} AND tombstoned_at IS NULL
ORDER BY name LIMIT {{limit:UInt32}}"""  # noqa: S608 - column names


class TrustRepository:
    """Owns the `trusts` table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def find(self, org: str, name: str) -> Trust | None:
        """Returns a trust, a removed one too, or None where there never was one of that name."""
        rows = await self._ch.query(_ONE, {"org": org, "name": name}, settings=own_write_reads(self._ch))
        return next((_trust(row) for row in rows.dicts()), None)

    async def page(self, org: str, *, after: str, limit: int) -> list[Trust]:
        """Returns live trusts by name, from behind `after`."""
        rows = await self._ch.query(
            _PAGE, {"org": org, "after": after, "limit": limit}, settings=own_write_reads(self._ch)
        )
        return [_trust(row) for row in rows.dicts()]

    async def put(self, trust: Trust) -> None:
        """Stores a trust or its removal; its version is above that of any earlier row of it."""
        row = (
            trust.org,
            trust.name,
            trust.issuer,
            trust.audience,
            trust.jwks_url,
            trust.jwks,
            list(trust.required_claims),
            [list(values) for values in trust.required_claims.values()],
            trust.agent_claim,
            trust.role.label,
            trust.token_ttl_s,
            trust.by_operator,
            trust.updated_at,
            trust.updated_by,
            trust.updated_at if trust.removed else None,
            trust.version,
        )
        await self._ch.insert(_TABLE, [row])


def _trust(row: dict[str, Any]) -> Trust:  # the columns' own types, which no static type knows
    names, values = row.pop("claim_names"), row.pop("claim_values")
    removed = row.pop("tombstoned_at") is not None
    row.update(
        required_claims={name: tuple(held) for name, held in zip(names, values, strict=True)},
        role=Role[row["role"].upper()],
        by_operator=bool(row["by_operator"]),
    )
    return Trust(**row, removed=removed)
