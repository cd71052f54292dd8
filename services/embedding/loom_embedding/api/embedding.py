"""Serves `loom.embedding.v1.EmbeddingService`."""

import grpc

from loom.embedding.v1 import embedding_pb2 as pb
from loom.embedding.v1 import embedding_pb2_grpc as pb_grpc
from loom_embedding.app.queries import DEFAULT_BOUND_MS, DEFAULT_RETRIES, QueryEmbedding
from loom_embedding.app.texts import Embedded, TextEmbedding
from loom_embedding.domain.embedder import ServedModel

Context = grpc.aio.ServicerContext[object, object]


class EmbeddingServicer(pb_grpc.EmbeddingServiceServicer):
    """Translates between messages and use cases; the interceptor answers a LoomError."""

    def __init__(self, queries: QueryEmbedding, texts: TextEmbedding, served: ServedModel) -> None:
        self._queries = queries
        self._texts = texts
        self._served = served

    async def EmbedQuery(self, request: pb.EmbedQueryRequest, context: Context) -> pb.EmbedQueryResponse:
        """Embeds one query."""
        vector = await self._queries.embed(
            request.text,
            bound_ms=request.bound_ms if request.HasField("bound_ms") else DEFAULT_BOUND_MS,
            retries=request.retries if request.HasField("retries") else DEFAULT_RETRIES,
        )
        return pb.EmbedQueryResponse(vector=vector.tolist(), model=self._served.name)

    async def EmbedMany(self, request: pb.EmbedManyRequest, context: Context) -> pb.EmbedManyResponse:
        """Embeds texts as they are."""
        results = await self._texts.embed(list(request.texts))
        return pb.EmbedManyResponse(
            results=[embedded_to_proto(result) for result in results], model=self._served.name, dim=self._served.dim
        )

    async def GetServedModel(self, request: pb.GetServedModelRequest, context: Context) -> pb.GetServedModelResponse:
        """Returns the model that this process serves."""
        served = self._served
        return pb.GetServedModelResponse(
            model=served.name,
            dim=served.dim,
            fake=served.fake,
            window_tokens=served.window_tokens,
            noise_floor=served.noise_floor,
            provider=served.provider,
        )


def embedded_to_proto(result: Embedded) -> pb.EmbeddedText:
    """Returns the message for one text."""
    return pb.EmbeddedText(
        chunks=[
            pb.EmbeddedChunk(start_offset=chunk.span.start, end_offset=chunk.span.end, vector=chunk.vector.tolist())
            for chunk in result.chunks
        ],
        error=result.error.value if result.error is not None else "",
    )
