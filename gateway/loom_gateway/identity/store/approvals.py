"""The table of what people let programs on other machines do."""

from loom_common.clickhouse import ClickHouse, Table, own_write_reads
from loom_gateway.identity.domain.sessions import DeviceApproval

_TABLE = Table.of(
    "device_approvals",
    quorum=True,
    code_digest="String",
    org="LowCardinality(String)",
    subject="String",
    approved_at="DateTime64(3, 'UTC')",
    expires_at="DateTime64(3, 'UTC')",
    used_at="Nullable(DateTime64(3, 'UTC'))",
    version="UInt64",
)

_ONE = """SELECT code_digest, org, subject, approved_at, expires_at, used_at, version
FROM device_approvals FINAL WHERE code_digest = {digest:String}"""


class ApprovalRepository:
    """Owns the `device_approvals` table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def find(self, digest: str) -> DeviceApproval | None:
        """Returns an approval, a used one too, or None where nobody gave one."""
        rows = await self._ch.query(_ONE, {"digest": digest}, settings=own_write_reads(self._ch))
        return next((DeviceApproval(*row) for row in rows), None)

    async def put(self, approval: DeviceApproval) -> None:
        """Stores an approval; its version is above that of any earlier row of it."""
        row = (
            approval.code_digest,
            approval.org,
            approval.subject,
            approval.approved_at,
            approval.expires_at,
            approval.used_at,
            approval.version,
        )
        await self._ch.insert(_TABLE, [row])
