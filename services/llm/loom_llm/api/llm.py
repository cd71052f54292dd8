"""Serves `loom.llm.v1.LlmService`."""

import grpc

from loom.llm.v1 import llm_pb2 as pb
from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_llm.app.completion import Completion
from loom_llm.domain.client import DEFAULT_MAX_TOKENS, LLMResult, ResponseFormat
from loom_llm.domain.selection import FAKE, Selection


class LlmServicer(pb_grpc.LlmServiceServicer):
    """Translates between messages and use cases; the interceptor answers a LoomError."""

    def __init__(self, completion: Completion, selection: Selection) -> None:
        self._completion = completion
        self._selection = selection

    async def Complete(
        self,
        request: pb.CompleteRequest,
        context: grpc.aio.ServicerContext[pb.CompleteRequest, pb.CompleteResponse],
    ) -> pb.CompleteResponse:
        """Completes one prompt."""
        result = await self._completion.complete(
            request.system,
            request.user,
            request.max_tokens if request.HasField("max_tokens") else DEFAULT_MAX_TOKENS,
            response_format_from_proto(request),
        )
        return result_to_proto(result)

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


def response_format_from_proto(request: pb.CompleteRequest) -> ResponseFormat | None:
    """Returns the shape that the answer must have; None for plain text."""
    return {"type": "json_object"} if request.response_format == "json_object" else None


def result_to_proto(result: LLMResult) -> pb.CompleteResponse:
    """Returns the message for one answer."""
    return pb.CompleteResponse(
        text=result.text,
        input_tokens=result.input_tokens,
        output_tokens=result.output_tokens,
        cached_input_tokens=result.cached_input_tokens,
        cache_write_tokens=result.cache_write_tokens,
        provider=result.provider,
        model=result.model,
        from_cache=result.from_cache,
    )
