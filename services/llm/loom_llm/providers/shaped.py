"""Sends requests in the shape that a model takes, and learns it where that is not known."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from typing import Final, TypeVar

from loom_common.telemetry.genai import ModelSpan, Operation, model_call
from loom_llm.domain.messages import DEFAULT_MAX_TOKENS, ChatRequest, Delta, LLMResult, ResponseFormat
from loom_llm.domain.opening import OpenStream, opened
from loom_llm.domain.spending import wasted_here
from loom_llm.domain.traits import TEMPERATURE, WISHED_TEMPERATURE, Shape, Traits
from loom_llm.providers.checking import StreamCheck
from loom_llm.providers.sdk import RefusedShape
from loom_llm.providers.wire import Wire

# Source: derived: each field dropped once, each effort tried once, the other name of the cap and some limits.
_MOST_REFUSALS: Final = 12

T = TypeVar("T")


class ShapedClient:
    """Asks one model through its provider's API. An `LLMClient`.

    Args:
        wire: The API.
        model: Model to ask.
        traits: What is known of it; shared by all clients of the model.
    """

    def __init__(self, wire: Wire, model: str, traits: Traits) -> None:
        self.model = model
        self._wire = wire
        self._traits = traits

    @property
    def provider(self) -> str:
        """See `LLMClient.provider`."""
        return self._wire.provider

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        """See `LLMClient.complete`."""
        request = ChatRequest.of_prompt(system, user, max_tokens, response_format)

        async def send(shape: Shape, cap: int) -> LLMResult:
            with self._span(request, shape, cap, stream=False) as span:
                result = await self._wire.send(self.model, request, shape, cap)
                _tell(span, result)
                return result

        result, cap = await self._shaped(lambda: self._traits.cap(max_tokens), send)
        self._traits.reasoned(_hidden(result))
        if not _thought_only(result) or self._traits.ceiling(max_tokens) <= cap:
            return result
        try:
            again, _ = await self._shaped(lambda: self._traits.ceiling(max_tokens), send)
        except BaseException:
            wasted_here().append(result)
            raise
        self._traits.reasoned(_hidden(again))
        return _with_spent(again, result)

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """See `LLMClient.chat`."""

        async def open_one(shape: Shape, cap: int) -> OpenStream:
            return await opened(self._streamed(request, shape, cap))

        wasted = wasted_here()
        stream, cap = await self._shaped(lambda: self._traits.cap(request.max_tokens), open_one)
        spent = None
        only = stream.begun[-1].result if stream.begun else None
        if only is not None and _thought_only(only):
            self._traits.reasoned(_hidden(only))
            if self._traits.ceiling(request.max_tokens) > cap:
                await stream.rest.aclose()
                spent = only
        try:
            if spent is not None:
                stream, _ = await self._shaped(lambda: self._traits.ceiling(request.max_tokens), open_one)
            async with aclosing(stream.deltas()) as deltas:
                async for delta in deltas:
                    if delta.result is None:
                        yield delta
                        continue
                    self._traits.reasoned(_hidden(delta.result))
                    told = delta if spent is None else replace(delta, result=_with_spent(delta.result, spent))
                    spent = None
                    yield told
        except BaseException:
            if spent is not None:
                wasted.append(spent)
            raise

    async def _streamed(self, request: ChatRequest, shape: Shape, cap: int) -> AsyncGenerator[Delta, None]:
        """Yields the wire's stream inside of a span."""
        check = StreamCheck(self.provider)
        with self._span(request, shape, cap, stream=True) as span:
            async with aclosing(self._wire.stream(self.model, request, shape, cap)) as deltas:
                async for raw in deltas:
                    delta = check.checked(raw)
                    if delta.visible:
                        span.first_token()
                    if delta.result is not None:
                        _tell(span, delta.result)
                    yield delta

    def _span(self, request: ChatRequest, shape: Shape, cap: int, *, stream: bool) -> AbstractContextManager[ModelSpan]:
        return model_call(
            Operation.CHAT,
            self.provider,
            self.model,
            max_tokens=cap,
            temperature=WISHED_TEMPERATURE if shape.carries(TEMPERATURE) else None,
            json=request.wants_json,
            stream=stream,
        )

    async def _shaped(self, cap_now: Callable[[], int], send: Callable[[Shape, int], Awaitable[T]]) -> tuple[T, int]:
        """Returns what a request is answered in a shape that the model takes, and the cap that was sent."""
        traits = self._traits
        async with traits.turn(cap_now()):
            for _ in range(_MOST_REFUSALS):
                shape, cap = traits.shape, cap_now()
                try:
                    answer = await send(shape, cap)
                except RefusedShape as error:
                    if not traits.learn(error.refusal, shape, cap):
                        raise error.plain() from None
                    refused = error.plain()
                else:
                    traits.accepted(cap, shape)
                    return answer, cap
        raise refused


def _tell(span: ModelSpan, result: LLMResult) -> None:
    span.answered(
        model=result.model,
        input_tokens=result.input_tokens,
        output_tokens=result.output_tokens,
        cached_tokens=result.cached_input_tokens,
        cache_write_tokens=result.cache_write_tokens,
        finish_reasons=[result.stop_reason],
        response_id=result.response_id,
    )


def _thought_only(result: LLMResult) -> bool:
    """Returns whether hidden reasoning took all the room: the cap was reached and nothing can be seen."""
    return result.stop_reason == "length" and not result.text.strip() and not result.tool_calls


def _hidden(result: LLMResult) -> int:
    """Returns how many tokens were hidden reasoning; where nothing can be seen, all were, whatever is told."""
    return max(result.reasoning_tokens, result.output_tokens if _thought_only(result) else 0)


def _with_spent(result: LLMResult, before: LLMResult) -> LLMResult:
    """Returns `result` with what the attempt before it spent added: both were billed."""
    return replace(
        result,
        input_tokens=result.input_tokens + before.input_tokens,
        output_tokens=result.output_tokens + before.output_tokens,
        cached_input_tokens=result.cached_input_tokens + before.cached_input_tokens,
        cache_write_tokens=result.cache_write_tokens + before.cache_write_tokens,
        reasoning_tokens=result.reasoning_tokens + before.reasoning_tokens,
    )
