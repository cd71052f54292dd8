"""The embedding service over gRPC."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import grpc.aio

from loom.embedding.v1 import embedding_pb2 as pb
from loom.embedding.v1 import embedding_pb2_grpc as pb_grpc
from loom_common.errors import (
    KINDS,
    BackendUnavailable,
    DeadlineExceeded,
    EmbedTimeout,
    LoomError,
    ProviderFailed,
    Reason,
)
from loom_common.model_calls.held import HOLDS
from loom_memory.app.embedding import Chunk, EmbeddedText, ServedModel

_MARGIN_S: Final = 0.2
_SERVED_TIMEOUT_S: Final = 5.0
# Under the time that a report of status may take as a whole.
_PING_TIMEOUT_S: Final = 2.0
# Source: chosen. A long text's vectors take about twice its bytes at 384 dimensions and eight times at 1,536; both
# stay under the message limit of 8 MiB. The call's own time grows with its texts.
_CALL_BYTES: Final = 512 * 1024
_CALL_TEXTS: Final = 512
_EMBED_MANY_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class QueryBound:
    """Time that the embedding of a query may take: `bound_s` for each of `1 + retries` attempts."""

    bound_s: float
    retries: int


class GrpcEmbedding:
    """Asks the embedding service; remembers which model it serves until an answer names another."""

    def __init__(self, channel: grpc.aio.Channel, bound: QueryBound) -> None:
        self._stub = pb_grpc.EmbeddingServiceStub(channel)
        self._bound = bound
        self._served: ServedModel | None = None

    async def served_model(self) -> ServedModel:
        """See `EmbeddingPort.served_model`."""
        if self._served is None:
            answer = await self._stub.GetServedModel(pb.GetServedModelRequest(), timeout=_SERVED_TIMEOUT_S)
            self._served = ServedModel(
                name=answer.model, dim=answer.dim, fake=answer.fake, noise_floor=answer.noise_floor
            )
        return self._served

    async def ping(self) -> None:
        """See `EmbeddingPort.ping`."""
        try:
            await self._stub.GetServedModel(pb.GetServedModelRequest(), timeout=_PING_TIMEOUT_S)
        except DeadlineExceeded as error:
            raise BackendUnavailable("Embedding does not answer.") from error

    async def embed_query(self, text: str) -> Sequence[float]:
        """See `EmbeddingPort.embed_query`."""
        request = pb.EmbedQueryRequest(
            text=text, bound_ms=max(1, round(self._bound.bound_s * 1000)), retries=self._bound.retries
        )
        timeout_s = self._bound.bound_s * (1 + self._bound.retries) + _MARGIN_S
        try:
            answer = await self._stub.EmbedQuery(request, timeout=timeout_s)
        except DeadlineExceeded as error:
            raise EmbedTimeout(
                "The embedding of the query did not come in time; try again, or search with search_mode lexical.",
                detail={"bound_s": self._bound.bound_s, "retries": self._bound.retries},
            ) from error
        self._notice(answer.model)
        return list(answer.vector)

    async def embed_many(self, texts: Sequence[str]) -> list[EmbeddedText]:
        """See `EmbeddingPort.embed_many`."""
        found: list[EmbeddedText] = []
        for part in _parts(texts):
            try:
                answer = await self._stub.EmbedMany(pb.EmbedManyRequest(texts=part), timeout=_EMBED_MANY_TIMEOUT_S)
            except HOLDS as error:
                if not found:
                    raise
                # The vectors that were bought are not lost for those that were not.
                return [*found, *([error] * (len(texts) - len(found)))]
            self._notice(answer.model)
            if len(answer.results) != len(part):
                raise ProviderFailed("The embedding service answered for another number of texts.")
            found.extend(_embedded_from_proto(result) for result in answer.results)
        return found

    def _notice(self, model: str) -> None:
        """Forgets the model when another answers: vectors of two models must not be stored or compared as one's."""
        if self._served is not None and self._served.name != model:
            self._served = None
            raise BackendUnavailable("The embedding model was changed; try again.")


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode())
        if part and (size + length > _CALL_BYTES or len(part) == _CALL_TEXTS):
            yield part
            part, size = [], 0
        part.append(text)
        size += length
    if part:
        yield part


def _embedded_from_proto(result: pb.EmbeddedText) -> EmbeddedText:
    if result.error or not result.chunks:
        return _error(result.error)
    return [Chunk(chunk.start_offset, chunk.end_offset, list(chunk.vector)) for chunk in result.chunks]


def _error(reason: str) -> LoomError:
    kind = KINDS[Reason(reason)] if reason in Reason.__members__ else ProviderFailed
    return kind("The text could not be embedded.")
