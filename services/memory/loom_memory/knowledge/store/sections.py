"""The table `knowledge_sections`: the text of documents, by section."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Sequence
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Row, Table, own_write_reads
from loom_memory.knowledge.domain.documents import Document
from loom_memory.knowledge.domain.noise import Noise
from loom_memory.knowledge.domain.sections import Section
from loom_memory.knowledge.store.filters import IN_SCOPE, of_document

TABLE: Final = Table.of(
    "knowledge_sections",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    source_uri="String",
    version="UInt64",
    ordinal="UInt32",
    anchor="String",
    heading="String",
    heading_path="Array(String)",
    level="UInt8",
    start_offset="UInt32",
    end_offset="UInt32",
    body_offset="UInt32",
    noise="LowCardinality(String)",
    text="String",
)

_SECTION: Final = "ordinal, anchor, heading, level, heading_path, start_offset, end_offset, body_offset, noise"
_ONE: Final = f"{IN_SCOPE} AND source_uri = {{source_uri:String}} AND version = {{version:UInt64}}"
_PAGE: Final = f"""SELECT {_SECTION} FROM knowledge_sections WHERE {_ONE} AND ordinal >= {{first:UInt32}}
ORDER BY ordinal LIMIT {{limit:UInt32}}"""
_TEXT: Final = f"""SELECT start_offset, text FROM knowledge_sections
WHERE {_ONE} AND end_offset > {{start:UInt32}} AND start_offset < {{end:UInt32}} ORDER BY ordinal"""
_NOISE: Final = f"""SELECT noise, count() FROM knowledge_sections WHERE {_ONE} AND noise != ''
GROUP BY noise ORDER BY noise"""
_OF_CHUNKS: Final = f"""SELECT source_uri, version, {_SECTION} FROM knowledge_sections
WHERE {IN_SCOPE} AND (source_uri, version, ordinal) IN {{places:Array(Tuple(String, UInt64, UInt32))}}"""

SectionPlace = tuple[str, int, int]
"""URI and version of a document, and the ordinal of one of its sections."""


class SectionRepository:
    """Owns the table `knowledge_sections`; `leftovers` alone names it beside this."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def insert(self, document: Document, sections: Sequence[Section], text: str) -> None:
        """Stores the sections of a version, which nobody sees before its document names it."""
        rows = [_row(document, section, text) for section in sections]
        await self._ch.insert(TABLE, rows)

    async def page(self, document: Document, first: int, limit: int) -> list[Section]:
        """Returns sections from one on, in order."""
        parameters = {**_version(document), "first": first, "limit": limit}
        return [_section(row) for row in await self._ch.query(_PAGE, parameters, settings=self._reads)]

    async def text(self, document: Document, start: int, end: int) -> str:
        """Returns a stretch of the stored text, in code points; beyond its end there is nothing."""
        parameters = {**_version(document), "start": start, "end": end}
        rows = (await self._ch.query(_TEXT, parameters, settings=self._reads)).rows
        if not rows:
            return ""
        first = rows[0][0]
        return "".join(row[1] for row in rows)[max(start - first, 0) : end - first]

    async def noise(self, document: Document) -> dict[str, int]:
        """Counts sections that are noise, by kind."""
        return {row[0]: row[1] for row in await self._ch.query(_NOISE, _version(document), settings=self._reads)}

    async def of_places(self, scope: Scope, places: Sequence[SectionPlace]) -> dict[SectionPlace, Section]:
        """Returns sections of several documents."""
        if not places:
            return {}
        parameters = {"org": scope.org, "namespace": scope.namespace, "places": sorted(set(places))}
        rows = await self._ch.query(_OF_CHUNKS, parameters, settings=self._reads)
        return {(row[0], row[1], row[2]): _section(row[2:]) for row in rows}


def _version(document: Document) -> dict[str, object]:
    return {**of_document(document.scope, document.source_uri), "version": document.version}


def _row(document: Document, section: Section, text: str) -> tuple[object, ...]:
    return (
        document.scope.org,
        document.scope.namespace,
        document.source_uri,
        document.version,
        section.ordinal,
        section.anchor,
        section.heading,
        list(section.heading_path),
        min(section.level, 255),
        section.start,
        section.end,
        section.body,
        section.noise.value,
        text[section.start : section.end],
    )


def _section(row: Row) -> Section:
    return Section(
        ordinal=row[0],
        anchor=row[1],
        heading=row[2],
        level=row[3],
        heading_path=tuple(row[4]),
        start=row[5],
        end=row[6],
        body=row[7],
        noise=Noise(row[8]),
    )
