"""Reading documents: whole, by section, as an outline, as a list."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from loom_common.call import Scope
from loom_common.errors import InvalidArgument, LoomError
from loom_common.page_tokens import decode_page_token, encode_page_token
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.domain.vectors import VectorSpace
from loom_memory.knowledge.domain.documents import Document, DocumentFilter
from loom_memory.knowledge.domain.sections import MAX_SECTIONS, SEPARATOR, Section
from loom_memory.knowledge.store.documents import DocumentRepository, VersionFacts
from loom_memory.knowledge.store.embeddings import KnowledgeEmbeddingRepository
from loom_memory.knowledge.store.sections import SectionRepository

MAX_VERSIONS: Final = 100


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a document; `next_offset` is where the rest of what was asked for begins."""

    document: Document
    section: Section | None
    text: str
    start: int
    end: int
    next_offset: int | None


@dataclass(frozen=True, slots=True)
class Outline:
    """A page of a document's sections."""

    document: Document
    sections: Sequence[Section]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page of documents."""

    documents: Sequence[Document]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """How a document is stored; `model` is empty where embedding cannot be reached."""

    document: Document
    embedded: int
    model: str
    noise: dict[str, int]
    versions: Sequence[VersionFacts]


class DocumentReader:
    """Reads documents. A read sees one version, whole, whatever is written meanwhile."""

    def __init__(
        self,
        documents: DocumentRepository,
        sections: SectionRepository,
        embeddings: KnowledgeEmbeddingRepository,
        embedding: EmbeddingPort,
    ) -> None:
        self._documents = documents
        self._sections = sections
        self._embeddings = embeddings
        self._embedding = embedding

    async def document(self, scope: Scope, source_uri: str) -> Document | None:
        """Returns what is known of a document, or None where there is none."""
        return await self._documents.get(scope, source_uri)

    async def get(self, scope: Scope, source_uri: str, section: str, offset: int | None, limit: int) -> Part | None:
        """Returns a stretch of a document, or None where there is none.

        Args:
            scope: Namespace to read.
            source_uri: The document.
            section: Anchor or breadcrumb of one section, the sections below it included; empty for the whole.
            offset: Where to begin, in the document's text; None for the beginning of what is asked for.
            limit: Most characters.

        Raises:
            InvalidArgument: The offset lies outside of what is asked for.
        """
        document = await self._documents.get(scope, source_uri)
        if document is None:
            return None
        first, behind = 0, document.facts.chars
        found: Section | None = None
        if section:
            sections = await self._sections.page(document, 0, MAX_SECTIONS)
            found = find_section(sections, section)
            if found is None:
                return Part(document, None, "", 0, 0, None)
            first, behind = found.start, _end_with_below(sections, found)
        start = first if offset is None else offset
        if not first <= start <= behind:
            raise InvalidArgument.of("offset", f"must lie between {first} and {behind}")
        end = min(start + limit, behind)
        text = await self._sections.text(document, start, end)
        return Part(document, found, text, start, end, end if end < behind else None)

    async def sections(self, document: Document) -> list[Section]:
        """Returns every section of a version, in order."""
        return await self._sections.page(document, 0, MAX_SECTIONS)

    async def text(self, document: Document, start: int, end: int) -> str:
        """Returns a stretch of a version's text."""
        return await self._sections.text(document, start, end)

    async def outline(self, scope: Scope, source_uri: str, page_size: int, page_token: str) -> Outline | None:
        """Returns a page of a document's sections, or None where there is no such document.

        Raises:
            InvalidArgument: The token is of no page of this document's version.
        """
        query: dict[str, JsonValue] = {"org": scope.org, "namespace": scope.namespace, "of": source_uri}
        place = decode_page_token(page_token, query, (int, int))
        document = await self._documents.get(scope, source_uri)
        if document is None:
            return None
        first, revision = (int(place[0] or 0), place[1]) if place else (0, document.revision)
        if revision != document.revision:
            raise InvalidArgument.of("page_token", "is of a version that was replaced meanwhile; begin without a token")
        found = await self._sections.page(document, first, page_size + 1)
        more = encode_page_token((first + page_size, revision), query) if len(found) > page_size else ""
        return Outline(document, found[:page_size], more)

    async def list(self, scope: Scope, wanted: DocumentFilter, page_size: int, page_token: str) -> DocumentPage:
        """Returns a page of documents, in order of their URIs.

        Raises:
            InvalidArgument: The token is of no page of this list.
        """
        query: dict[str, JsonValue] = {
            "org": scope.org,
            "namespace": scope.namespace,
            "tags": [*wanted.tags],
            "kinds": [*wanted.kinds],
            "prefix": wanted.source_prefix,
        }
        place = decode_page_token(page_token, query, (str,))
        found = await self._documents.page(scope, wanted, str(place[0]) if place else "", page_size + 1)
        more = encode_page_token((found[page_size - 1].source_uri,), query) if len(found) > page_size else ""
        return DocumentPage(found[:page_size], more)

    async def inspect(self, scope: Scope, source_uri: str) -> Inspection | None:
        """Returns how a document is stored, or None where there is none."""
        document = await self._documents.get(scope, source_uri)
        if document is None:
            return None
        model, embedded = "", 0
        try:
            served = await self._embedding.served_model()
            model = served.name
            embedded = await self._embeddings.embedded(document, VectorSpace(served.name, served.dim))
        except LoomError:
            # Embedding that is away is one of the things that somebody who inspects wants to see.
            model = ""
        return Inspection(
            document,
            embedded,
            model,
            await self._sections.noise(document),
            await self._documents.versions(document, MAX_VERSIONS),
        )


def find_section(sections: Sequence[Section], name: str) -> Section | None:
    """Returns the section that an anchor or a breadcrumb names; a breadcrumb may leave out the document's title.

    Of several with one breadcrumb it is the first: their anchors tell them apart.
    """
    wanted = name.strip().removeprefix("#")
    for section in sections:
        if section.anchor == wanted:
            return section
    plain = _plain(wanted)
    for section in sections:
        if plain in (_plain(section.breadcrumb), _plain(SEPARATOR.join(section.heading_path[1:]))):
            return section
    return None


def _plain(breadcrumb: str) -> str:
    return " ".join(breadcrumb.split()).casefold()


def _end_with_below(sections: Sequence[Section], section: Section) -> int:
    end = section.end
    for below in sections[section.ordinal + 1 :]:
        # What stands before the first heading has nothing below it.
        if not section.level or below.level <= section.level:
            break
        end = below.end
    return end
