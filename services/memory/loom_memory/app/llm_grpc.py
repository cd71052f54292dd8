"""The llm service over gRPC."""

from collections.abc import Sequence
from typing import Final

import grpc.aio

from loom.llm.v1 import llm_pb2 as pb
from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_common.clock import Clock, SystemClock
from loom_common.errors import ProviderFailed
from loom_common.prompts import Prompt
from loom_memory.app.llm import DEFAULT_MAX_TOKENS, DEFAULT_TIMEOUT_S, AnswerCacheUse, Completion, ServedLlm

_SERVED_TIMEOUT_S: Final = 5.0
_RERANK_TIMEOUT_S: Final = 60.0
_FAKE: Final = "fake"
# A deployment that gets a key is not asked to restart memory too.
_KEPT_S: Final = 60.0
# Most that the contract takes; an answer over more keys than these is not kept.
_MAX_KEYS: Final = 2000


class GrpcLlm:
    """Asks the llm service. An `LlmPort`."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock | None = None) -> None:
        self._stub = pb_grpc.LlmServiceStub(channel)
        self._clock = clock or SystemClock()
        self._served: ServedLlm | None = None
        self._told_s = 0.0

    async def served(self) -> ServedLlm:
        """See `LlmPort.served`; what was told is kept for a minute, and no longer than another model answers."""
        if self._served is None or self._clock.monotonic_s() - self._told_s >= _KEPT_S:
            answer = await self._stub.GetServedModel(pb.GetServedModelRequest(), timeout=_SERVED_TIMEOUT_S)
            self._served = ServedLlm(answer.provider, answer.model, answer.fake)
            self._told_s = self._clock.monotonic_s()
        return self._served

    async def complete(
        self,
        system: str,
        user: str,
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        json: bool = False,
        feature: str,
        model: str | None = None,
        prompt: Prompt | None = None,
        cache: AnswerCacheUse | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Completion:
        """See `LlmPort.complete`."""
        request = pb.CompleteRequest(
            system=system,
            user=user,
            max_tokens=max_tokens,
            response_format="json_object" if json else "text",
            model=model or None,
            cache=_cache_to_proto(cache),
            prompt=_reference(prompt, feature),
        )
        answer = await self._stub.Complete(request, timeout=timeout_s)
        if self._served is not None and model is None and answer.provider != self._served.provider:
            # Another model is served since; a fallback's answer only costs one more look.
            self._served = None
        return Completion(answer.text, answer.from_cache, answer.model, answer.stop_reason, answer.provider == _FAKE)

    async def rerank(self, query: str, texts: Sequence[str], *, endpoint: str, named: bool) -> list[float]:
        """See `LlmPort.rerank`."""
        request = pb.RerankRequest(reranker=endpoint, query=query, documents=texts, named=named)
        answer = await self._stub.Rerank(request, timeout=_RERANK_TIMEOUT_S)
        scores = {result.index: result.relevance_score for result in answer.results}
        if not answer.reranked or scores.keys() != set(range(len(texts))):
            raise ProviderFailed("The reranker's answer could not be read.")
        return [scores[place] for place in range(len(texts))]


def _cache_to_proto(cache: AnswerCacheUse | None) -> pb.CacheUse | None:
    if cache is None:
        return None
    if len(cache.window_keys) > _MAX_KEYS or len(cache.tags) > _MAX_KEYS:
        # It could not be found again by each of its keys, so that an erasure would miss it.
        return pb.CacheUse(enabled=False)
    return pb.CacheUse(
        enabled=cache.enabled,
        window_keys=cache.window_keys,
        tags=cache.tags,
        traffic_class=cache.traffic_class,
    )


def _reference(prompt: Prompt | None, feature: str) -> pb.PromptReference:
    if prompt is None:
        return pb.PromptReference(name=feature)
    return pb.PromptReference(family=prompt.family, name=prompt.name, version=prompt.version)
