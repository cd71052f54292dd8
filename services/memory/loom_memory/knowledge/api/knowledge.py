"""`loom.memory.v1.KnowledgeService`."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc.aio

from loom.memory.v1 import knowledge_pb2 as pb
from loom.memory.v1 import knowledge_pb2_grpc as pb_grpc
from loom_common.call import scope
from loom_memory.api.repeats import Repeats
from loom_memory.app.access import actor
from loom_memory.knowledge.api.messages import (
    document_to_proto,
    hit_to_proto,
    inspection_to_proto,
    list_filter_from_proto,
    order_from_proto,
    query_from_proto,
    section_to_proto,
    synthesis_to_proto,
)
from loom_memory.knowledge.api.uploads import Intake
from loom_memory.knowledge.app.ingest import Ingestion, Status
from loom_memory.knowledge.app.read import DocumentReader
from loom_memory.knowledge.app.search import KnowledgeSearch
from loom_memory.knowledge.app.synthesis import Synthesizer

_DEFAULT_LIMIT = 16_000
_DEFAULT_SECTIONS = 200
_DEFAULT_DOCUMENTS = 50


class KnowledgeServicer(pb_grpc.KnowledgeServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(
        self,
        intake: Intake,
        ingestion: Ingestion,
        reader: DocumentReader,
        search: KnowledgeSearch,
        synthesizer: Synthesizer,
        repeats: Repeats,
    ) -> None:
        self._intake = intake
        self._ingestion = ingestion
        self._reader = reader
        self._search = search
        self._synthesizer = synthesizer
        self._repeats = repeats

    async def IngestDocuments(
        self,
        request: pb.IngestDocumentsRequest,
        context: grpc.aio.ServicerContext[pb.IngestDocumentsRequest, pb.IngestDocumentsResponse],
    ) -> pb.IngestDocumentsResponse:
        """See the contract."""
        # One after the other: of two of one name the later one stays.
        results = [await self._intake.one(given) for given in request.documents]
        counts = {status: sum(result.status == status for result in results) for status in Status}
        return pb.IngestDocumentsResponse(
            results=results,
            stored_count=counts[Status.STORED],
            unchanged_count=counts[Status.UNCHANGED],
            refused_count=counts[Status.REFUSED],
        )

    async def UploadDocuments(
        self,
        request_iterator: AsyncIterator[pb.UploadDocumentsRequest],
        context: grpc.aio.ServicerContext[pb.UploadDocumentsRequest, pb.UploadDocumentsResponse],
    ) -> AsyncIterator[pb.UploadDocumentsResponse]:
        """See the contract."""
        async with aclosing(self._intake.upload(request_iterator)) as progresses:
            async for progress in progresses:
                yield progress

    async def SearchKnowledge(
        self,
        request: pb.SearchKnowledgeRequest,
        context: grpc.aio.ServicerContext[pb.SearchKnowledgeRequest, pb.SearchKnowledgeResponse],
    ) -> pb.SearchKnowledgeResponse:
        """See the contract."""
        result = await self._search.search(scope(), query_from_proto(request, self._search))
        return pb.SearchKnowledgeResponse(
            hits=[hit_to_proto(hit, explain=request.explain) for hit in result.hits],
            candidates_total=result.candidates,
            abstain_code=result.abstained,
            embedding_pending=result.pending,
            reranked_by=result.reranked_by,
            rerank_failure=result.rerank_failure,
        )

    async def GetDocument(
        self,
        request: pb.GetDocumentRequest,
        context: grpc.aio.ServicerContext[pb.GetDocumentRequest, pb.GetDocumentResponse],
    ) -> pb.GetDocumentResponse:
        """See the contract."""
        part = await self._reader.get(
            scope(),
            request.source_uri,
            request.section,
            request.offset if request.HasField("offset") else None,
            request.limit if request.HasField("limit") else _DEFAULT_LIMIT,
        )
        if part is None:
            return pb.GetDocumentResponse(found=False)
        return pb.GetDocumentResponse(
            found=not request.section or part.section is not None,
            document=document_to_proto(part.document),
            section=None if part.section is None else section_to_proto(part.section),
            text=part.text,
            start_offset=part.start,
            end_offset=part.end,
            next_offset=part.next_offset,
        )

    async def ListDocumentSections(
        self,
        request: pb.ListDocumentSectionsRequest,
        context: grpc.aio.ServicerContext[pb.ListDocumentSectionsRequest, pb.ListDocumentSectionsResponse],
    ) -> pb.ListDocumentSectionsResponse:
        """See the contract."""
        page_size = request.page_size if request.HasField("page_size") else _DEFAULT_SECTIONS
        outline = await self._reader.outline(scope(), request.source_uri, page_size, request.page_token)
        if outline is None:
            return pb.ListDocumentSectionsResponse(found=False)
        return pb.ListDocumentSectionsResponse(
            found=True,
            document=document_to_proto(outline.document),
            sections=[section_to_proto(section) for section in outline.sections],
            next_page_token=outline.next_page_token,
        )

    async def ListDocuments(
        self,
        request: pb.ListDocumentsRequest,
        context: grpc.aio.ServicerContext[pb.ListDocumentsRequest, pb.ListDocumentsResponse],
    ) -> pb.ListDocumentsResponse:
        """See the contract."""
        page_size = request.page_size if request.HasField("page_size") else _DEFAULT_DOCUMENTS
        page = await self._reader.list(scope(), list_filter_from_proto(request), page_size, request.page_token)
        return pb.ListDocumentsResponse(
            documents=[document_to_proto(document) for document in page.documents],
            next_page_token=page.next_page_token,
        )

    async def InspectDocument(
        self,
        request: pb.InspectDocumentRequest,
        context: grpc.aio.ServicerContext[pb.InspectDocumentRequest, pb.InspectDocumentResponse],
    ) -> pb.InspectDocumentResponse:
        """See the contract."""
        inspection = await self._reader.inspect(scope(), request.source_uri)
        return pb.InspectDocumentResponse(found=False) if inspection is None else inspection_to_proto(inspection)

    async def DeleteDocument(
        self,
        request: pb.DeleteDocumentRequest,
        context: grpc.aio.ServicerContext[pb.DeleteDocumentRequest, pb.DeleteDocumentResponse],
    ) -> pb.DeleteDocumentResponse:
        """See the contract."""
        deleted = await self._ingestion.delete(scope(), request.source_uri, actor())
        return pb.DeleteDocumentResponse(deleted=deleted, source_uri=request.source_uri)

    async def SynthesizeDocument(
        self,
        request: pb.SynthesizeDocumentRequest,
        context: grpc.aio.ServicerContext[pb.SynthesizeDocumentRequest, pb.SynthesizeDocumentResponse],
    ) -> pb.SynthesizeDocumentResponse:
        """See the contract."""

        async def work() -> pb.SynthesizeDocumentResponse:
            return synthesis_to_proto(await self._synthesizer.write(scope(), order_from_proto(request), actor()))

        return await self._repeats.once(request, pb.SynthesizeDocumentResponse, work)
