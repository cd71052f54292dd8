"""Serves `loom.llm.v1.LlmService`."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc

from loom.llm.v1 import llm_pb2 as pb
from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_llm.api.translation import (
    chat_request_from_proto,
    end_to_proto,
    fragment_to_proto,
    prompt_from_proto,
    reference_from_proto,
    result_to_proto,
    stream_request_from_proto,
)
from loom_llm.app.cache import AnswerCache
from loom_llm.app.chat import Chat
from loom_llm.app.completion import Completion
from loom_llm.domain.selection import FAKE, Selection


class LlmServicer(pb_grpc.LlmServiceServicer):
    """Translates between messages and use cases; the interceptor answers a LoomError."""

    def __init__(self, completion: Completion, chat: Chat, cache: AnswerCache, selection: Selection) -> None:
        self._completion = completion
        self._chat = chat
        self._cache = cache
        self._selection = selection

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
        async with aclosing(self._chat.stream(asked, request.model, reference_from_proto(request))) as deltas:
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
        async with aclosing(self._chat.stream(asked, request.model, reference_from_proto(request))) as deltas:
            async for delta in deltas:
                if delta.visible or delta.result is not None:
                    fragments = [fragment_to_proto(one) for one in delta.tool_calls]
                    yield pb.ChatResponse(text=delta.text, tool_calls=fragments, end=end_to_proto(delta.result))

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
