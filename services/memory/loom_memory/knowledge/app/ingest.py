"""Taking documents in.

The order of a write: sections, passages, vectors, and the document last, which names their version. Nothing is seen
before it, and then all of it; what an interrupted write leaves is removed by the upkeep. The version before stays for
readers that have begun with it.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock, MonotonicVersions
from loom_common.conditional_writes import Claims, Hold, claim_name
from loom_common.errors import InvalidArgument, LoomError, PayloadTooLarge
from loom_common.local_locks import KeyedLocks
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.domain.memory import to_milliseconds
from loom_memory.knowledge.app.conversion import Conversion
from loom_memory.knowledge.domain.chunks import ChunkPlace
from loom_memory.knowledge.domain.documents import Document, DocumentFacts
from loom_memory.knowledge.domain.preparation import Prepared, Source, embedded_text
from loom_memory.knowledge.store.chunks import ChunkRepository
from loom_memory.knowledge.store.documents import DocumentRepository
from loom_memory.knowledge.store.embeddings import ChunkVectors, KnowledgeEmbeddingRepository
from loom_memory.knowledge.store.sections import SectionRepository

logger = logging.getLogger(__name__)

MAX_URI_CHARS: Final = 1024
# Source: chosen. One call of so many texts is short enough that progress moves every second or so.
_BATCH: Final = 64


class Stage(StrEnum):
    """How far a document is."""

    RECEIVED = "received"
    CONVERTED = "converted"
    EMBEDDING = "embedding"
    DONE = "done"


class Status(StrEnum):
    """What became of a document."""

    STORED = "stored"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of a document that was taken: the version that holds it, and passages that lack their vectors."""

    document: Document
    status: Status
    pending: int = 0


Notice = Callable[[Stage, int, int], None]
"""Hears of a stage, and how many of how many passages have their vectors."""

_Vectors = tuple[str, list[Sequence[Sequence[float]]]]


def _unheard(stage: Stage, done: int, total: int) -> None:
    return None


class Ingestion:
    """Stores documents and removes them; of two writes of one document the second waits."""

    def __init__(
        self,
        documents: DocumentRepository,
        sections: SectionRepository,
        chunks: ChunkRepository,
        embeddings: KnowledgeEmbeddingRepository,
        embedding: EmbeddingPort,
        conversion: Conversion,
        *,
        clock: Clock,
        claims: Claims | None,
        max_bytes: int,
        pending: Callable[[Scope], None],
        deleted: Callable[[Scope, str, int], None],
    ) -> None:
        # `pending` hears of a namespace where passages lack their vectors, `deleted` of a deletion and its version.
        self._documents = documents
        self._sections = sections
        self._chunks = chunks
        self._embeddings = embeddings
        self._embedding = embedding
        self._conversion = conversion
        self._clock = clock
        self._claims = claims
        self._max_bytes = max_bytes
        self._pending = pending
        self._deleted = deleted
        self._versions = MonotonicVersions(clock)
        self._locks = KeyedLocks()

    async def ingest(
        self,
        scope: Scope,
        source: Source,
        actor: str,
        notice: Notice = _unheard,
        *,
        embed_s: float = float("inf"),
    ) -> Ingested:
        """Stores a document.

        Args:
            scope: Namespace to write.
            source: The document.
            actor: Who writes it.
            notice: Hears how far it is.
            embed_s: Seconds after which no further passages get their vectors here; a worker makes the others.

        Raises:
            InvalidArgument: It has no name, or cannot be read.
            PayloadTooLarge: It passes a bound.
            Conflict: Another process writes it and does not end.
            BackendUnavailable: The store cannot be reached.
        """
        self._check(source)
        known = await self._documents.get(scope, source.source_uri)
        if known is not None and _is_same(known, source):
            return Ingested(known, Status.UNCHANGED)
        prepared = await self._conversion.prepare(source)
        notice(Stage.CONVERTED, 0, len(prepared.chunks))
        vectors = await self._embed(prepared, notice, embed_s)
        async with self._alone(scope, source.source_uri) as hold:
            newest = await self._documents.newest(scope, source.source_uri)
            if newest is not None and newest.tombstoned_at is None and _is_same(newest, source):
                return Ingested(newest, Status.UNCHANGED)
            document = self._next(scope, source, prepared, newest, actor)
            pending = await self._store(document, prepared, vectors)
            if hold is not None:
                await hold.confirm()
        if pending:
            self._pending(scope)
        return Ingested(document, Status.STORED, pending)

    async def delete(self, scope: Scope, source_uri: str, actor: str) -> bool:
        """Removes a document from every read, and says whether there was one.

        Raises:
            Conflict: Another process writes it and does not end.
        """
        async with self._alone(scope, source_uri) as hold:
            newest = await self._documents.newest(scope, source_uri)
            if newest is None or newest.tombstoned_at is not None:
                return False
            now = to_milliseconds(self._clock.now())
            version = self._versions.next(after=newest.version)
            # The deletion keeps the number of the version, so that the next is a later one, and nothing that was said.
            await self._documents.insert(
                Document(
                    scope=scope,
                    source_uri=source_uri,
                    facts=DocumentFacts(title="", kind=newest.facts.kind),
                    actor=actor,
                    revision=newest.revision,
                    version=version,
                    created_at=newest.created_at,
                    updated_at=now,
                    tombstoned_at=now,
                )
            )
            if hold is not None:
                await hold.confirm()
        self._deleted(scope, source_uri, version)
        return True

    def _check(self, source: Source) -> None:
        if not source.source_uri.strip():
            raise InvalidArgument.of("source_uri", "must name the document")
        if len(source.source_uri) > MAX_URI_CHARS:
            raise InvalidArgument.of("source_uri", f"must be at most {MAX_URI_CHARS} characters")
        if not source.content:
            raise InvalidArgument.of("content", "must hold something: the document is empty")
        if len(source.content) > self._max_bytes:
            raise too_large(len(source.content), self._max_bytes)

    async def _embed(self, prepared: Prepared, notice: Notice, embed_s: float) -> _Vectors:
        """Returns the model and the vectors of each passage, none where they cannot be had now."""
        total = len(prepared.chunks)
        begun_s = self._clock.monotonic_s()
        found: list[Sequence[Sequence[float]]] = []
        model = ""
        texts = [
            embedded_text(
                prepared.sections[each.chunk.section].breadcrumb, prepared.text[each.chunk.start : each.chunk.end]
            )
            for each in prepared.chunks
        ]
        try:
            model = (await self._embedding.served_model()).name
            for first in range(0, total, _BATCH):
                if self._clock.monotonic_s() - begun_s > embed_s:
                    break
                embedded = await self._embedding.embed_many(texts[first : first + _BATCH])
                found += [[] if isinstance(each, LoomError) else [part.vector for part in each] for each in embedded]
                notice(Stage.EMBEDDING, len(found), total)
        except LoomError as error:
            # The document is not lost for it: its words are found, and a worker makes the vectors later.
            logger.warning("passages_without_vectors", extra={"reason": error.reason.value, "passages": total})
        return model, [*found, *([[]] * (total - len(found)))]

    def _next(self, scope: Scope, source: Source, prepared: Prepared, newest: Document | None, actor: str) -> Document:
        now = to_milliseconds(self._clock.now())
        is_known = newest is not None and newest.tombstoned_at is None
        return Document(
            scope=scope,
            source_uri=source.source_uri,
            facts=DocumentFacts(
                title=prepared.title,
                kind=prepared.kind,
                language=prepared.language,
                tags=source.tags,
                digest=source.digest,
                size_bytes=len(source.content),
                chars=len(prepared.text),
                pages=prepared.pages,
                sections=len(prepared.sections),
                chunks=len(prepared.chunks),
                derived_from=source.derived_from,
            ),
            actor=actor,
            revision=1 if newest is None else newest.revision + 1,
            version=self._versions.next(after=0 if newest is None else newest.version),
            created_at=newest.created_at if newest is not None and is_known else now,
            updated_at=now,
        )

    async def _store(self, document: Document, prepared: Prepared, vectors: _Vectors) -> int:
        """Stores a version in the order that keeps it unseen until it is whole, and counts passages without vectors."""
        model, found = vectors
        await self._sections.insert(document, prepared.sections, prepared.text)
        await self._chunks.insert(document, prepared)
        rows = [
            ChunkVectors(ChunkPlace(document.source_uri, document.version, each.chunk.number), held)
            for each, held in zip(prepared.chunks, found, strict=True)
            if held
        ]
        if rows:
            await self._embeddings.insert(document.scope, model, rows)
        await self._documents.insert(document)
        return len(prepared.chunks) - len(rows)

    @asynccontextmanager
    async def _alone(self, scope: Scope, source_uri: str) -> AsyncIterator[Hold | None]:
        async with self._locks.one((scope, source_uri)):
            if self._claims is None:
                yield None
                return
            name = claim_name("knowledge", scope.org, scope.namespace, source_uri)
            async with self._claims.hold(name, renewed=True) as hold:
                yield hold


def too_large(size: int, most: int) -> PayloadTooLarge:
    """Returns the refusal of a document that is too long as it is sent."""
    return PayloadTooLarge(
        f"The document has {size:,} bytes, and {most:,} are taken. Split it into several.",
        detail={"size_bytes": size, "limit_bytes": most},
    )


def _is_same(known: Document, source: Source) -> bool:
    facts = known.facts
    return (facts.digest, facts.tags, facts.derived_from) == (source.digest, source.tags, source.derived_from)
