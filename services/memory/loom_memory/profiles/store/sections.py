"""The table `profile_sections`: every version of the sections of profiles."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Collection, Sequence
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Row, Table, own_write_reads
from loom_memory.domain.analyzer import analyze_text
from loom_memory.domain.memory import Identity
from loom_memory.profiles.domain.sections import Origin, ProfileSection
from loom_memory.store.filters import IN_SCOPE, in_scope

_TIME: Final = "DateTime64(3, 'UTC')"
TABLE: Final = Table.of(
    "profile_sections",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    section_id="String",
    revision="UInt32",
    user_id="String",
    agent="String",
    label="String",
    value="String",
    origin="LowCardinality(String)",
    evidence="Array(Tuple(String, String, String))",
    term_ids="Array(UInt32)",
    actor="String",
    updated_at=_TIME,
    tombstoned_at=f"Nullable({_TIME})",
    version="UInt64",
)

LIVE: Final = "tombstoned_at IS NULL"
"""Keeps sections that are there, of the newest version of each."""

_COLUMNS: Final = "label, value, user_id, agent, updated_at, revision, origin, evidence, actor, tombstoned_at"
# The newest version first, and of it whether it is a removal: an older one must not show through.
_CURRENT: Final = f"""SELECT {_COLUMNS} FROM (
    SELECT {_COLUMNS}, section_id FROM profile_sections FINAL
    WHERE {IN_SCOPE} AND has({{users:Array(String)}}, user_id) AND has({{agents:Array(String)}}, agent)
    ORDER BY section_id, revision DESC LIMIT 1 BY section_id
) WHERE {LIVE} ORDER BY user_id, agent, lower(label), section_id LIMIT {{limit:UInt32}}"""
_BY_ID: Final = f"""SELECT {_COLUMNS} FROM (
    SELECT {_COLUMNS}, section_id FROM profile_sections FINAL
    WHERE {IN_SCOPE} AND section_id IN {{ids:Array(String)}}
    ORDER BY section_id, revision DESC LIMIT 1 BY section_id
) WHERE {LIVE} ORDER BY section_id LIMIT {{limit:UInt32}}"""
_NEWEST: Final = f"""SELECT {_COLUMNS} FROM profile_sections FINAL
WHERE {IN_SCOPE} AND section_id = {{id:String}} ORDER BY revision DESC LIMIT 1"""
_VERSIONS: Final = f"""SELECT {_COLUMNS} FROM profile_sections FINAL
WHERE {IN_SCOPE} AND section_id = {{id:String}} AND revision < {{before:UInt32}}
ORDER BY revision DESC LIMIT {{limit:UInt32}}"""
_WITH_WORDS: Final = f"""SELECT {_COLUMNS} FROM (
    SELECT {_COLUMNS}, section_id, term_ids FROM profile_sections FINAL
    WHERE {IN_SCOPE} AND (NOT {{of_users:Bool}} OR has({{users:Array(String)}}, user_id))
        AND (NOT {{of_agents:Bool}} OR has({{agents:Array(String)}}, agent))
    ORDER BY section_id, revision DESC LIMIT 1 BY section_id
) WHERE {LIVE} AND hasAny(term_ids, {{terms:Array(UInt32)}})
ORDER BY length(arrayIntersect(term_ids, {{terms:Array(UInt32)}})) DESC, section_id LIMIT {{limit:UInt32}}"""


class SectionRepository:
    """Owns the table; no other class names it."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def insert(self, scope: Scope, section: ProfileSection, version: int) -> None:
        """Stores a version; every read that begins later sees it."""
        terms = [] if section.is_removed else analyze_text(section.text).term_ids
        await self._ch.insert(
            TABLE,
            [
                (
                    scope.org, scope.namespace, section.id, section.version, section.user_id, section.agent,
                    section.label, section.value, section.origin.value, [tuple(one) for one in section.evidence], terms,
                    section.actor, section.updated_at, section.updated_at if section.is_removed else None, version,
                )
            ],
        )  # fmt: skip

    async def current(
        self, scope: Scope, users: Collection[str], agents: Collection[str], limit: int
    ) -> list[ProfileSection]:
        """Returns the sections of these users and agents, by owner and label."""
        parameters = {**in_scope(scope), "users": sorted(users), "agents": sorted(agents), "limit": limit}
        return _sections(list(await self._ch.query(_CURRENT, parameters, settings=self._reads)))

    async def by_ids(self, scope: Scope, ids: Collection[str]) -> list[ProfileSection]:
        """Returns sections that are there."""
        if not ids:
            return []
        parameters = {**in_scope(scope), "ids": sorted(ids), "limit": len(ids)}
        return _sections(list(await self._ch.query(_BY_ID, parameters, settings=self._reads)))

    async def newest(self, scope: Scope, section_id: str) -> ProfileSection | None:
        """Returns the newest version of a section, a removal too."""
        rows = await self._ch.query(_NEWEST, {**in_scope(scope), "id": section_id}, settings=self._reads)
        return next(iter(_sections(list(rows))), None)

    async def versions(self, scope: Scope, section_id: str, before: int, limit: int) -> list[ProfileSection]:
        """Returns versions below a number, the newest first."""
        parameters = {**in_scope(scope), "id": section_id, "before": before, "limit": limit}
        return _sections(list(await self._ch.query(_VERSIONS, parameters, settings=self._reads)))

    async def with_words(
        self,
        scope: Scope,
        terms: Collection[int],
        users: Collection[str] | None,
        agents: Collection[str] | None,
        limit: int,
    ) -> list[ProfileSection]:
        """Returns sections that hold any of these terms, those with most of them first; None keeps every owner."""
        parameters = {
            **in_scope(scope),
            "terms": sorted(terms),
            "of_users": users is not None,
            "users": sorted(users or ()),
            "of_agents": agents is not None,
            "agents": sorted(agents or ()),
            "limit": limit,
        }
        return _sections(list(await self._ch.query(_WITH_WORDS, parameters, settings=self._reads)))


def _sections(rows: Sequence[Row]) -> list[ProfileSection]:
    return [
        ProfileSection(
            row[0],
            row[1],
            row[2],
            row[3],
            row[4],
            row[5],
            Origin(row[6]),
            tuple(Identity(*one) for one in row[7]),
            row[8],
            is_removed=row[9] is not None,
        )
        for row in rows
    ]
