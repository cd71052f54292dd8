"""The table `namespace_guides`: every version of the guides of namespaces."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Row, Table, own_write_reads
from loom_memory.guides.domain.guide import Guide
from loom_memory.store.filters import IN_SCOPE, in_scope

TABLE: Final = Table.of(
    "namespace_guides",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    revision="UInt32",
    text="String",
    actor="String",
    updated_at="DateTime64(3, 'UTC')",
    version="UInt64",
)

_COLUMNS: Final = "org, namespace, text, revision, actor, updated_at"
_NEWEST: Final = f"""SELECT {_COLUMNS} FROM namespace_guides FINAL
WHERE {IN_SCOPE} ORDER BY revision DESC LIMIT 1"""
_ONE: Final = f"""SELECT {_COLUMNS} FROM namespace_guides FINAL
WHERE {IN_SCOPE} AND revision = {{revision:UInt32}} ORDER BY revision LIMIT 1"""


class GuideRepository:
    """Owns the table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def insert(self, guide: Guide, version: int) -> None:
        """Stores a version; every read that begins later sees it."""
        await self._ch.insert(
            TABLE,
            [
                (
                    guide.scope.org, guide.scope.namespace, guide.revision, guide.text, guide.actor, guide.updated_at,
                    version,
                )
            ],
        )  # fmt: skip

    async def newest(self, scope: Scope) -> Guide | None:
        """Returns the newest version, a removal too; None where there never was one."""
        return _guide((await self._ch.query(_NEWEST, in_scope(scope), settings=self._reads)).first())

    async def version(self, scope: Scope, revision: int) -> Guide | None:
        """Returns one version; None where there is none of that number."""
        parameters = {**in_scope(scope), "revision": revision}
        return _guide((await self._ch.query(_ONE, parameters, settings=self._reads)).first())


def _guide(row: Row | None) -> Guide | None:
    return None if row is None else Guide(Scope(row[0], row[1]), *row[2:])
