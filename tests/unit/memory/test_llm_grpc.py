"""The llm service as memory calls it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.grpc import Deployment

from loom.llm.v1 import llm_pb2 as pb
from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_common.clock import FakeClock
from loom_common.errors import ProviderFailed
from loom_common.server import Service
from loom_memory.app.llm import AnswerCacheUse
from loom_memory.app.llm_grpc import GrpcLlm
from loom_memory.domain.prompts.ask import SYNTHESIS


class StandIn(pb_grpc.LlmServiceServicer):
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.provider = "fake"
        self.asked: list[pb.CompleteRequest] = []
        self.ranking = pb.RerankResponse()

    async def GetServedModel(self, request: pb.GetServedModelRequest, context: object) -> pb.GetServedModelResponse:
        return pb.GetServedModelResponse(provider=self.provider, model="m", fake=self.provider == "fake")

    async def Complete(self, request: pb.CompleteRequest, context: object) -> pb.CompleteResponse:
        self.asked.append(request)
        return pb.CompleteResponse(text="yes", provider=self.provider, model="m", stop_reason="length")

    async def Rerank(self, request: pb.RerankRequest, context: object) -> pb.RerankResponse:
        return self.ranking


@asynccontextmanager
async def serving(keys: Path, stand_in: StandIn, clock: FakeClock) -> AsyncIterator[GrpcLlm]:
    deployment = Deployment(keys)
    service = Service(pb_grpc.add_LlmServiceServicer_to_server, stand_in, "loom.llm.v1.LlmService")
    async with (
        deployment.serving(service, name="llm") as server,
        deployment.channel(server.address, "memory") as channel,
    ):
        yield GrpcLlm(channel, clock)


async def test_a_prompt_and_what_may_be_kept_of_its_answer_go_over_whole(service_keys: Path) -> None:
    stand_in, clock = StandIn(), FakeClock()
    async with serving(service_keys, stand_in, clock) as llm:
        use = AnswerCacheUse(True, ["a"], ["consolidated"], "bench")
        answer = await llm.complete("s", "u", json=True, feature="ask", model="big", prompt=SYNTHESIS, cache=use)
        await llm.complete("s", "u", feature="ask", cache=AnswerCacheUse(True, [str(key) for key in range(2_001)]))
        assert (answer.text, answer.stop_reason, answer.fake) == ("yes", "length", True)
        first, second = stand_in.asked
        assert (first.model, first.response_format, first.prompt.name) == ("big", "json_object", "synthesis")
        assert (first.cache.enabled, list(first.cache.window_keys), list(first.cache.tags)) == (
            True,
            ["a"],
            ["consolidated"],
        )
        # An answer that could not be found by each of its keys again must not be kept.
        assert (second.cache.enabled, len(second.cache.window_keys), second.HasField("model")) == (False, 0, False)

        assert (await llm.served()).fake
        stand_in.provider = "openai"
        assert (await llm.served()).fake, "it is kept for a minute"
        clock.advance(61)
        assert not (await llm.served()).fake

        stand_in.ranking = pb.RerankResponse(
            reranked=True,
            results=[pb.RerankResult(index=1, relevance_score=0.9), pb.RerankResult(index=0, relevance_score=0.2)],
        )
        assert await llm.rerank("q", ["a", "b"], endpoint="builtin:cohere", named=True) == [0.2, 0.9]
        stand_in.ranking = pb.RerankResponse(reranked=False)
        with pytest.raises(ProviderFailed):
            await llm.rerank("q", ["a", "b"], endpoint="builtin:cohere", named=True)
