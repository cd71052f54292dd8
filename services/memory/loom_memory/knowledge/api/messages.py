"""Between messages and the plane's own types."""

from typing import Final

from loom.memory.v1 import knowledge_pb2 as pb
from loom_common.call import current
from loom_common.times import format_time
from loom_memory.knowledge.app.agents import agent_of
from loom_memory.knowledge.app.ingest import Ingested
from loom_memory.knowledge.app.read import Inspection
from loom_memory.knowledge.app.search import KnowledgeHit, KnowledgeQuery, KnowledgeSearch, SearchMode
from loom_memory.knowledge.app.synthesis import CheckedCitation, Order, Synthesis
from loom_memory.knowledge.domain.documents import Document, DocumentFilter
from loom_memory.knowledge.domain.sections import Section
from loom_memory.knowledge.store.documents import VersionFacts

_DEFAULT_TOP_K: Final = 10


def document_to_proto(document: Document) -> pb.Document:
    """Returns the message of a document, without its text."""
    facts = document.facts
    return pb.Document(
        namespace=document.scope.namespace,
        source_uri=document.source_uri,
        title=facts.title,
        kind=facts.kind.value,
        language=facts.language,
        tags=facts.tags,
        version=document.revision,
        actor=document.actor,
        created_at=format_time(document.created_at),
        updated_at=format_time(document.updated_at),
        size_bytes=facts.size_bytes,
        char_count=facts.chars,
        page_count=facts.pages,
        section_count=facts.sections,
        derived_from=facts.derived_from,
    )


def section_to_proto(section: Section) -> pb.DocumentSection:
    """Returns the message of a section, without its text."""
    return pb.DocumentSection(
        anchor=section.anchor,
        heading=section.heading,
        heading_path=section.heading_path,
        breadcrumb=section.breadcrumb,
        level=section.level,
        start_offset=section.start,
        end_offset=section.end,
        noise=section.noise.value,
    )


def ingested_to_proto(ingested: Ingested) -> pb.IngestResult:
    """Returns the message of a document that was taken."""
    document = ingested.document
    return pb.IngestResult(
        source_uri=document.source_uri,
        status=ingested.status.value,
        version=document.revision,
        title=document.facts.title,
        kind=document.facts.kind.value,
        section_count=document.facts.sections,
        chunk_count=document.facts.chunks,
        embedding_pending=ingested.pending,
    )


def list_filter_from_proto(request: pb.ListDocumentsRequest) -> DocumentFilter:
    """Returns the filter of a list, which shows every agent's rules."""
    return DocumentFilter(
        tags=tuple(sorted(set(request.tags))),
        source_prefix=request.source_prefix,
        kinds=tuple(sorted(set(request.kinds))),
    )


def query_from_proto(request: pb.SearchKnowledgeRequest, search: KnowledgeSearch) -> KnowledgeQuery:
    """Returns the query of a request; the agent that it does not name is the token's."""
    rerank, is_named = search.reranker(request.rerank if request.HasField("rerank") else None)
    return KnowledgeQuery(
        text=request.query,
        wanted=DocumentFilter(
            tags=tuple(sorted(set(request.tags))),
            source_prefix=request.source_prefix,
            kinds=tuple(sorted(set(request.kinds))),
            agent=request.agent if request.HasField("agent") else agent_of(current().claims),
        ),
        top_k=request.top_k if request.HasField("top_k") else _DEFAULT_TOP_K,
        mode=SearchMode(request.search_mode) if request.HasField("search_mode") else SearchMode.HYBRID,
        rerank=rerank,
        is_rerank_named=is_named,
    )


def hit_to_proto(hit: KnowledgeHit, *, explain: bool) -> pb.KnowledgeHit:
    """Returns the message of a hit."""
    candidate = hit.ranked.candidate
    why = None
    if explain:
        why = pb.KnowledgeHitExplanation(
            lexical_share=candidate.share,
            bm25=candidate.bm25,
            exact=candidate.exact,
            fused=hit.ranked.order,
            rerank_score=hit.ranked.rerank_score,
            demoted=hit.ranked.is_noise,
        )
    return pb.KnowledgeHit(
        document=document_to_proto(hit.document),
        section=section_to_proto(hit.section),
        text=hit.chunk.text,
        start_offset=hit.chunk.start,
        end_offset=hit.chunk.end,
        score=hit.ranked.score,
        similarity=candidate.cosine,
        low=hit.ranked.is_low,
        why=why,
    )


def inspection_to_proto(inspection: Inspection) -> pb.InspectDocumentResponse:
    """Returns the message of an inspection."""
    facts = inspection.document.facts
    return pb.InspectDocumentResponse(
        found=True,
        document=document_to_proto(inspection.document),
        digest=facts.digest,
        chunk_count=facts.chunks,
        embedded_count=inspection.embedded,
        embedding_model=inspection.model,
        noise_counts=[pb.NoiseCount(noise=noise, section_count=count) for noise, count in inspection.noise.items()],
        versions=[_version_to_proto(version) for version in inspection.versions],
    )


def order_from_proto(request: pb.SynthesizeDocumentRequest) -> Order:
    """Returns what is to be written."""
    return Order(
        source_uris=tuple(request.source_uris),
        instruction=request.instruction.strip(),
        target_uri=request.target_uri,
        title=request.title,
        tags=tuple(request.tags),
        dry_run=request.dry_run,
    )


def synthesis_to_proto(written: Synthesis) -> pb.SynthesizeDocumentResponse:
    """Returns the message of what was written."""
    return pb.SynthesizeDocumentResponse(
        stored=not written.reason,
        reason=written.reason,
        message=written.message,
        source_uri=written.source_uri,
        version=written.revision,
        text=written.text,
        citations=[_citation_to_proto(checked) for checked in written.citations],
        model=written.model,
        left_out_count=written.left_out,
    )


def _version_to_proto(version: VersionFacts) -> pb.DocumentVersion:
    return pb.DocumentVersion(
        version=version.revision,
        updated_at=format_time(version.updated_at),
        actor=version.actor,
        title=version.title,
        digest=version.digest,
        size_bytes=version.size_bytes,
        char_count=version.chars,
        section_count=version.sections,
    )


def _citation_to_proto(checked: CheckedCitation) -> pb.DocumentCitation:
    return pb.DocumentCitation(
        source_uri=checked.citation.source_uri,
        section=checked.citation.section,
        verified=checked.is_verified,
        reason=checked.reason,
        anchor=checked.anchor,
    )
