"""Serves `loom.llm.v1.LlmService`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final, TypeVar

import grpc

from loom.llm.v1 import llm_pb2 as pb
from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_common.errors import DeadlineExceeded
from loom_llm.api.translation import (
    chat_request_from_proto,
    end_to_proto,
    fragment_to_proto,
    prompt_from_proto,
    ranking_to_proto,
    reference_from_proto,
    reranking_from_proto,
    result_to_proto,
    stream_request_from_proto,
)
from loom_llm.app.cache import AnswerCache
from loom_llm.app.chat import Chat
from loom_llm.app.classify import Classify
from loom_llm.app.completion import Completion
from loom_llm.app.rerank import Rerank
from loom_llm.domain.selection import FAKE, Selection

LONGEST_WRITE_S: Final = 60.0
"""Longest time that a piece of a stream waits for a caller that does not read. Source: chosen; one that runs a tool
between two pieces, or waits for a person's slow line, is done by then."""

T = TypeVar("T")


class LlmServicer(pb_grpc.LlmServiceServicer):
    """Translates between messages and use cases; the interceptor answers a LoomError.

    Args:
        completion: Completes prompts.
        chat: Streams answers.
        rerank: Reranks documents.
        classify: Labels texts.
        cache: Answers that may be erased.
        selection: The served model.
        longest_write_s: Longest time that a piece of a stream waits for its reader.
    """

    def __init__(
        self,
        completion: Completion,
        chat: Chat,
        rerank: Rerank,
        classify: Classify,
        cache: AnswerCache,
        selection: Selection,
        *,
        longest_write_s: float = LONGEST_WRITE_S,
    ) -> None:
        self._completion = completion
        self._chat = chat
        self._rerank = rerank
        self._classify = classify
        self._cache = cache
        self._selection = selection
        self._longest_write_s = longest_write_s

    async def Complete(
        self,
        request: pb.CompleteRequest,
        context: grpc.aio.ServicerContext[pb.CompleteRequest, pb.CompleteResponse],
    ) -> pb.CompleteResponse:
        """Completes one prompt."""
        return result_to_proto(await self._completion.complete(prompt_from_proto(request)))

    async def StreamComplete(
        self,
        request: pb.StreamCompleteRequest,
        context: grpc.aio.ServicerContext[pb.StreamCompleteRequest, pb.StreamCompleteResponse],
    ) -> AsyncIterator[pb.StreamCompleteResponse]:
        """Completes one prompt piece by piece."""
        asked = stream_request_from_proto(request)
        stream = self._chat.stream(asked, request.model, reference_from_proto(request))
        async with aclosing(_taken_in_time(stream, self._longest_write_s)) as deltas:
            async for delta in deltas:
                if delta.text or delta.result is not None:
                    yield pb.StreamCompleteResponse(text=delta.text, end=end_to_proto(delta.result))

    async def Chat(
        self,
        request: pb.ChatRequest,
        context: grpc.aio.ServicerContext[pb.ChatRequest, pb.ChatResponse],
    ) -> AsyncIterator[pb.ChatResponse]:
        """Continues a conversation piece by piece."""
        asked = chat_request_from_proto(request)
        stream = self._chat.stream(asked, request.model, reference_from_proto(request))
        async with aclosing(_taken_in_time(stream, self._longest_write_s)) as deltas:
            async for delta in deltas:
                if delta.visible or delta.result is not None:
                    fragments = [fragment_to_proto(one) for one in delta.tool_calls]
                    yield pb.ChatResponse(text=delta.text, tool_calls=fragments, end=end_to_proto(delta.result))

    async def Rerank(
        self,
        request: pb.RerankRequest,
        context: grpc.aio.ServicerContext[pb.RerankRequest, pb.RerankResponse],
    ) -> pb.RerankResponse:
        """Scores documents by how well they answer a query."""
        ranking = await self._rerank.rerank(reranking_from_proto(request))
        return ranking_to_proto(ranking, request.top_n or None)

    async def Classify(
        self,
        request: pb.ClassifyRequest,
        context: grpc.aio.ServicerContext[pb.ClassifyRequest, pb.ClassifyResponse],
    ) -> pb.ClassifyResponse:
        """Labels a text."""
        labels = await self._classify.classify(request.endpoint, request.text)
        return pb.ClassifyResponse(labels=[pb.TextLabel(label=one.label, score=one.score) for one in labels])

    async def DeleteCachedByKeys(
        self,
        request: pb.DeleteCachedByKeysRequest,
        context: grpc.aio.ServicerContext[pb.DeleteCachedByKeysRequest, pb.DeleteCachedByKeysResponse],
    ) -> pb.DeleteCachedByKeysResponse:
        """Deletes cached answers by the memories that their prompts carried."""
        count = await self._cache.erase(request.org, request.namespace, request.keys, request.tags)
        return pb.DeleteCachedByKeysResponse(deleted_count=count)

    async def GetServedModel(
        self,
        request: pb.GetServedModelRequest,
        context: grpc.aio.ServicerContext[pb.GetServedModelRequest, pb.GetServedModelResponse],
    ) -> pb.GetServedModelResponse:
        """Returns the model that this process serves."""
        served = self._selection
        return pb.GetServedModelResponse(
            provider=served.provider,
            model=served.model,
            fake=served.provider == FAKE,
            provider_source=served.source.value,
        )


async def _taken_in_time(pieces: AsyncGenerator[T, None], longest_s: float) -> AsyncGenerator[T, None]:
    """Yields the pieces, and ends the stream where one of them waits for too long to be taken.

    A caller that stopped reading, and set no deadline, would else hold the provider's connection for ever.

    Raises:
        DeadlineExceeded: One did. The caller learns it once it reads on.
    """
    async with aclosing(pieces):
        async for piece in pieces:
            limit = asyncio.timeout(longest_s)
            try:
                async with limit:
                    yield piece
            # The limit cancels whoever writes the piece, which closes this generator.
            except GeneratorExit:
                if not limit.expired():
                    raise
                raise DeadlineExceeded(
                    f"A piece of the answer was not read for {longest_s:g} seconds. Read on, or close the stream.",
                    detail={"waited_s": longest_s},
                ) from None
