"""The tables `knowledge_documents` and `knowledge_versions`: what is known of documents, without their texts."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Row, Table, own_write_reads
from loom_memory.knowledge.domain.documents import Document, DocumentFacts, DocumentFilter, Kind
from loom_memory.knowledge.store.filters import IN_SCOPE, LIVE, in_scope, of_document, shown

_TIME: Final = "DateTime64(3, 'UTC')"

DOCUMENTS: Final = Table.of(
    "knowledge_documents",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    source_uri="String",
    title="String",
    kind="LowCardinality(String)",
    language="LowCardinality(String)",
    tags="Array(String)",
    digest="String",
    size_bytes="UInt32",
    chars="UInt32",
    pages="UInt32",
    sections="UInt32",
    chunks="UInt32",
    derived_from="Array(String)",
    actor="String",
    revision="UInt32",
    version="UInt64",
    created_at=_TIME,
    updated_at=_TIME,
    tombstoned_at=f"Nullable({_TIME})",
)
VERSIONS: Final = Table.of(
    "knowledge_versions",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    source_uri="String",
    version="UInt64",
    revision="UInt32",
    title="String",
    digest="String",
    size_bytes="UInt32",
    chars="UInt32",
    sections="UInt32",
    actor="String",
    updated_at=_TIME,
)

_SELECTED: Final = ", ".join(DOCUMENTS.column_names)
_ONE: Final = f"{IN_SCOPE} AND source_uri = {{source_uri:String}}"
_CURRENT: Final = f"SELECT {_SELECTED} FROM knowledge_documents FINAL WHERE {_ONE}"
_ANY: Final = f"SELECT count() FROM knowledge_documents FINAL WHERE {IN_SCOPE} AND {LIVE}"
# Of an interrupted write and its successor, which has the same revision, the successor counts.
_VERSIONS: Final = f"""SELECT revision, updated_at, actor, title, digest, size_bytes, chars, sections
FROM knowledge_versions
WHERE {_ONE} AND version <= {{current:UInt64}} AND updated_at >= {{since:{_TIME}}}
ORDER BY revision DESC, version DESC LIMIT 1 BY revision LIMIT {{limit:UInt32}}"""
_SCOPES: Final = """SELECT DISTINCT org, namespace FROM knowledge_documents
WHERE ({org:String} = '' OR org = {org:String}) AND ({namespace:String} = '' OR namespace = {namespace:String})
    AND NOT has({off:Array(String)}, org)
ORDER BY org, namespace"""


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """What was known of one version."""

    revision: int
    updated_at: datetime
    actor: str
    title: str
    digest: str
    size_bytes: int
    chars: int
    sections: int


class DocumentRepository:
    """Owns the two tables; beside it only `filters.LIVE_VERSIONS` names one of them."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def insert(self, document: Document) -> None:
        """Stores a version, or a deletion; from now on every read that begins sees it."""
        if document.tombstoned_at is None:
            await self._ch.insert(VERSIONS, [_version_row(document)])
        await self._ch.insert(DOCUMENTS, [_row(document)])

    async def newest(self, scope: Scope, source_uri: str) -> Document | None:
        """Returns the newest row of a document, a deletion included."""
        row = (await self._ch.query(_CURRENT, of_document(scope, source_uri), settings=self._reads)).first()
        return None if row is None else _document(row)

    async def get(self, scope: Scope, source_uri: str) -> Document | None:
        """Returns a document that is not deleted."""
        found = await self.newest(scope, source_uri)
        return None if found is None or found.tombstoned_at is not None else found

    async def page(self, scope: Scope, wanted: DocumentFilter, after: str, limit: int) -> list[Document]:
        """Returns documents behind a URI, in order of their URIs."""
        where = shown(scope, wanted)
        return await self._rows(_page(where.sql), {**where.parameters, "after": after, "limit": limit})

    async def of_uris(self, scope: Scope, source_uris: Sequence[str]) -> dict[str, Document]:
        """Returns those of some documents that are not deleted."""
        if not source_uris:
            return {}
        found = await self.page(scope, DocumentFilter(source_uris=tuple(source_uris)), "", len(source_uris))
        return {document.source_uri: document for document in found}

    async def any(self, scope: Scope) -> bool:
        """Says whether the namespace holds a document."""
        return bool((await self._ch.query(_ANY, in_scope(scope), settings=self._reads)).scalar())

    async def versions(self, document: Document, limit: int) -> list[VersionFacts]:
        """Returns the versions of a document since it was last deleted, newest first."""
        parameters = {
            **of_document(document.scope, document.source_uri),
            "current": document.version,
            "since": document.created_at,
            "limit": limit,
        }
        return [VersionFacts(*row) for row in await self._ch.query(_VERSIONS, parameters, settings=self._reads)]

    async def scopes(self, org: str = "", namespace: str = "", off: Sequence[str] = ()) -> list[Scope]:
        """Returns namespaces that have or had documents; an empty name is every one, those of `off` are left out."""
        parameters = {"org": org, "namespace": namespace, "off": list(off)}
        return [Scope(*row) for row in await self._ch.query(_SCOPES, parameters, settings=self._reads)]

    async def _rows(self, sql: str, parameters: Mapping[str, object]) -> list[Document]:
        return [_document(row) for row in await self._ch.query(sql, parameters, settings=self._reads)]


def _page(where: str) -> str:
    return f"""SELECT {_SELECTED} FROM knowledge_documents FINAL
WHERE {where} AND source_uri > {{after:String}} ORDER BY source_uri LIMIT {{limit:UInt32}}"""


def _row(document: Document) -> tuple[object, ...]:
    facts = document.facts
    return (
        document.scope.org,
        document.scope.namespace,
        document.source_uri,
        facts.title,
        facts.kind.value,
        facts.language,
        list(facts.tags),
        facts.digest,
        facts.size_bytes,
        facts.chars,
        facts.pages,
        facts.sections,
        facts.chunks,
        list(facts.derived_from),
        document.actor,
        document.revision,
        document.version,
        document.created_at,
        document.updated_at,
        document.tombstoned_at,
    )


def _version_row(document: Document) -> tuple[object, ...]:
    facts = document.facts
    return (
        document.scope.org,
        document.scope.namespace,
        document.source_uri,
        document.version,
        document.revision,
        facts.title,
        facts.digest,
        facts.size_bytes,
        facts.chars,
        facts.sections,
        document.actor,
        document.updated_at,
    )


def _document(row: Row) -> Document:
    facts = DocumentFacts(
        title=row[3],
        kind=Kind(row[4]),
        language=row[5],
        tags=tuple(row[6]),
        digest=row[7],
        size_bytes=row[8],
        chars=row[9],
        pages=row[10],
        sections=row[11],
        chunks=row[12],
        derived_from=tuple(row[13]),
    )
    return Document(Scope(row[0], row[1]), row[2], facts, row[14], row[15], row[16], row[17], row[18], row[19])
