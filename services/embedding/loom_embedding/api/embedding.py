"""Serves `loom.embedding.v1.EmbeddingService`."""

from collections.abc import Mapping
from dataclasses import dataclass

import grpc

from loom.embedding.v1 import embedding_pb2 as pb
from loom.embedding.v1 import embedding_pb2_grpc as pb_grpc
from loom_common.errors import InvalidArgument
from loom_embedding.app.queries import DEFAULT_BOUND_MS, DEFAULT_RETRIES, QueryEmbedding
from loom_embedding.app.texts import Embedded, TextEmbedding
from loom_embedding.domain.embedder import ServedModel

Context = grpc.aio.ServicerContext[object, object]


@dataclass(frozen=True, slots=True)
class Served:
    """A model, or a view over one, and what embeds with it."""

    queries: QueryEmbedding
    texts: TextEmbedding
    model: ServedModel


class EmbeddingServicer(pb_grpc.EmbeddingServiceServicer):
    """Translates between messages and use cases; the interceptor answers a LoomError."""

    def __init__(self, served: Served, views: Mapping[str, Served]) -> None:
        # `views` are over the served model, by label.
        self._served = served
        self._views = views

    async def EmbedQuery(self, request: pb.EmbedQueryRequest, context: Context) -> pb.EmbedQueryResponse:
        """Embeds one query."""
        served = self._named(request.view)
        vector = await served.queries.embed(
            request.text,
            bound_ms=request.bound_ms if request.HasField("bound_ms") else DEFAULT_BOUND_MS,
            retries=request.retries if request.HasField("retries") else DEFAULT_RETRIES,
        )
        return pb.EmbedQueryResponse(vector=vector.tolist(), model=served.model.name)

    async def EmbedMany(self, request: pb.EmbedManyRequest, context: Context) -> pb.EmbedManyResponse:
        """Embeds texts as they are."""
        served = self._named(request.view)
        results = await served.texts.embed(list(request.texts))
        return pb.EmbedManyResponse(
            results=[embedded_to_proto(result) for result in results], model=served.model.name, dim=served.model.dim
        )

    async def GetServedModel(self, request: pb.GetServedModelRequest, context: Context) -> pb.GetServedModelResponse:
        """Returns the model that this process serves."""
        served = self._served.model
        return pb.GetServedModelResponse(
            model=served.name,
            dim=served.dim,
            fake=served.fake,
            window_tokens=served.window_tokens,
            noise_floor=served.noise_floor,
            provider=served.provider,
        )

    def _named(self, view: str) -> Served:
        if not view:
            return self._served
        if view not in self._views:
            raise InvalidArgument.of("view", "is none that LOOM_CODE_SEARCH_VECTOR_MODELS lists")
        return self._views[view]


def embedded_to_proto(result: Embedded) -> pb.EmbeddedText:
    """Returns the message for one text."""
    return pb.EmbeddedText(
        chunks=[
            pb.EmbeddedChunk(start_offset=chunk.span.start, end_offset=chunk.span.end, vector=chunk.vector.tolist())
            for chunk in result.chunks
        ],
        error=result.error.value if result.error is not None else "",
    )
