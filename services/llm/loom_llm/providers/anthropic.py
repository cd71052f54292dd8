"""Anthropic, and servers that speak its messages, through the official SDK."""

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, assert_never, cast

import anthropic
from anthropic.types import (
    ContentBlockParam,
    Message,
    MessageDeltaUsage,
    MessageParam,
    OutputConfigParam,
    RawMessageStreamEvent,
    TextBlock,
    TextBlockParam,
    ToolChoiceParam,
    ToolParam,
    ToolUseBlock,
    Usage,
)
from anthropic.types.message_create_params import MessageCreateParamsBase

from loom_common.json_text import strict_object, without_fences
from loom_common.providers import FailureKind, ProviderError
from loom_llm.domain import messages as ours
from loom_llm.domain.messages import Assembly, ChatRequest, Delta, LLMResult, StopReason, ToolCallFragment
from loom_llm.domain.prompts.structured_output import JSON_DIRECTIVE
from loom_llm.domain.selection import ANTHROPIC
from loom_llm.domain.traits import OUTPUT_CONFIG, TEMPERATURE, WISHED_TEMPERATURE, Shape
from loom_llm.providers.checking import checked
from loom_llm.providers.sdk import Endpoint, SdkErrors

_ERRORS: Final = SdkErrors(
    ANTHROPIC,
    anthropic.APIStatusError,
    anthropic.APITimeoutError,
    anthropic.APIConnectionError,
    anthropic.AnthropicError,
)
_STOP: Final[Mapping[str, StopReason]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refusal",
}


class AnthropicWire:
    """Speaks `messages`.

    Args:
        endpoint: Where, and how it is reached.
        effort: Thinking effort to send; None leaves it to the model.
    """

    provider = ANTHROPIC

    def __init__(self, endpoint: Endpoint, *, effort: str | None = None) -> None:
        self._effort = effort
        http = endpoint.opened()
        self._sdk = anthropic.AsyncAnthropic(
            api_key=endpoint.api_key,
            base_url=endpoint.base_url,
            max_retries=0,
            timeout=http.timeout,
            http_client=http,
            # Its spans would double ours, and its environment variables put prompts into them.
            open_telemetry={"traces": False, "propagation": False},
        )
        # `ANTHROPIC_CUSTOM_HEADERS` would put headers into every request, over the key's too. No argument stops it.
        self._sdk._custom_headers = {}

    def wished(self) -> Shape:
        """See `Wire.wished`."""
        return Shape("max_tokens", effort=self._effort)

    async def send(self, model: str, request: ChatRequest, shape: Shape, cap: int) -> LLMResult:
        """See `Wire.send`."""
        params = _params(model, request, shape, cap)
        with _ERRORS.translated():
            answer: object = await self._sdk.messages.create(**params, extra_body=_unlisted(shape))
            # The SDK checks no types: an answer may be text, and any field anything.
            if not isinstance(answer, Message):
                raise ProviderError(ANTHROPIC, FailureKind.MALFORMED)
            assembly, counts = Assembly(), _Counts()
            assembly.add(Delta("".join(block.text for block in answer.content if isinstance(block, TextBlock))))
            uses = [block for block in answer.content if isinstance(block, ToolUseBlock)]
            for at, block in enumerate(uses):
                arguments = json.dumps(block.input, ensure_ascii=False)
                assembly.add(Delta(tool_calls=(ToolCallFragment(at, block.id, block.name, arguments),)))
            counts.take(answer.usage)
            answering = answer.model or model
            return _result(assembly, answering, answer.id, answer.stop_reason, counts, fenced=request.wants_json)

    async def stream(self, model: str, request: ChatRequest, shape: Shape, cap: int) -> AsyncGenerator[Delta, None]:
        """See `Wire.stream`. Where JSON is wanted, it comes in one piece: a fence around it is seen at its end only."""
        params, reading = _params(model, request, shape, cap), _Reading(model)
        with _ERRORS.translated():
            events = await self._sdk.messages.create(**params, extra_body=_unlisted(shape), stream=True)
            async with events:
                async for event in events:
                    delta = reading.take(event)
                    if delta.input_tokens or (delta.visible and not (request.wants_json and delta.text)):
                        yield delta
            if reading.stop is None:
                raise ProviderError(ANTHROPIC, FailureKind.CONNECTION)  # it broke off between two events
            result = reading.result(fenced=request.wants_json)
        yield Delta(text=result.text if request.wants_json else "", result=result)

    async def aclose(self) -> None:
        """See `Wire.aclose`."""
        await self._sdk.close()


@dataclass(slots=True)
class _Counts:
    """Counts as the API gives them: in full at the begin of a stream, and again, as far as they changed, at its end."""

    fresh: int = 0
    read: int = 0
    written: int = 0
    output: int = 0
    thinking: int = 0

    def take(self, usage: Usage | MessageDeltaUsage) -> None:
        # None at the begin is none that can be read; at the end it has not changed.
        self.fresh = usage.input_tokens if isinstance(usage, Usage) else _or(usage.input_tokens, self.fresh)
        self.read = _or(usage.cache_read_input_tokens, self.read)
        self.written = _or(usage.cache_creation_input_tokens, self.written)
        self.output = _or(usage.output_tokens, self.output)
        if usage.output_tokens_details is not None:
            self.thinking = _or(usage.output_tokens_details.thinking_tokens, self.thinking)

    @property
    def input(self) -> int:
        """Tokens of the whole prompt: the API counts cached ones beside the others, not among them."""
        return self.fresh + self.read + self.written


class _Reading:
    """One stream, as far as it was read."""

    def __init__(self, model: str) -> None:
        self.stop: str | None = None
        self._model = model
        self._answer_id = ""
        self._assembly = Assembly()
        self._counts = _Counts()
        self._calls: dict[int, int] = {}

    def take(self, event: RawMessageStreamEvent) -> Delta:
        """Returns what an event adds; nothing for one that shows nothing."""
        delta = self._delta(event)
        self._assembly.add(delta)
        return delta

    def result(self, *, fenced: bool) -> LLMResult:
        """Returns the whole answer, at the end of the stream."""
        return _result(self._assembly, self._model, self._answer_id, self.stop, self._counts, fenced=fenced)

    def _delta(self, event: RawMessageStreamEvent) -> Delta:
        match event.type:
            case "message_start":
                self._model, self._answer_id = event.message.model or self._model, event.message.id
                self._counts.take(event.message.usage)
                return Delta(input_tokens=self._counts.input)
            case "content_block_start" if event.content_block.type == "tool_use":
                # Blocks of text count too, calls are counted among themselves.
                at = self._calls.setdefault(event.index, len(self._calls))
                block = event.content_block
                return Delta(tool_calls=(ToolCallFragment(at, block.id, block.name),))
            case "content_block_start" if event.content_block.type == "text":
                return Delta(event.content_block.text)
            case "content_block_delta" if event.delta.type == "text_delta":
                return Delta(event.delta.text)
            case "content_block_delta" if event.delta.type == "input_json_delta" and event.delta.partial_json:
                piece = ToolCallFragment(self._calls[event.index], arguments=event.delta.partial_json)
                return Delta(tool_calls=(piece,))
            case "message_delta":
                self.stop = event.delta.stop_reason or self.stop
                self._counts.take(event.usage)
        return Delta()


def _params(model: str, request: ChatRequest, shape: Shape, cap: int) -> MessageCreateParamsBase:
    params: MessageCreateParamsBase = {
        "model": model,
        "max_tokens": cap,
        "messages": _turns(request.messages),
    }
    system = "\n\n".join(part for part in (request.system, JSON_DIRECTIVE.text if request.wants_json else "") if part)
    if system:  # an empty block is refused
        # Cacheable: the instructions of a feature, and the tools before them, are the same from call to call.
        block: TextBlockParam = {"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}
        params["system"] = [block]
    if shape.effort is not None and shape.carries(OUTPUT_CONFIG):
        params["output_config"] = cast(OutputConfigParam, {"effort": shape.effort})
    if request.tools:
        params["tools"] = [_tool(one) for one in request.tools]
        if request.tool_choice.mode != "auto":
            params["tool_choice"] = _tool_choice(request.tool_choice)
    return params


def _unlisted(shape: Shape) -> dict[str, object]:
    """Returns fields that the API takes for some models and the SDK does not list."""
    return {"temperature": WISHED_TEMPERATURE} if shape.carries(TEMPERATURE) else {}


def _turns(messages: Iterable[ours.Message]) -> list[MessageParam]:
    """Returns the conversation in turns that alternate, as the API wants them: results of calls are the user's."""
    turns: list[tuple[str, list[ContentBlockParam]]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].extend(_blocks(message))
    return [_turn(role, blocks) for role, blocks in turns if blocks]


def _turn(role: str, blocks: list[ContentBlockParam]) -> MessageParam:
    if role == "assistant":
        return {"role": "assistant", "content": _plain(blocks)}
    return {"role": "user", "content": _plain(blocks)}


def _plain(blocks: list[ContentBlockParam]) -> str | list[ContentBlockParam]:
    """Returns a turn of one text as that text."""
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return blocks[0]["text"]
    return blocks


def _blocks(message: ours.Message) -> list[ContentBlockParam]:
    text: list[ContentBlockParam] = [{"type": "text", "text": message.text}] if message.text else []
    match message.role:
        case "user":
            return text
        case "tool":
            return [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.text}]
        case "assistant":
            calls: list[ContentBlockParam] = [
                {"type": "tool_use", "id": call.id, "name": call.name, "input": _arguments(call.arguments)}
                for call in message.tool_calls
            ]
            return text + calls
        case _:
            assert_never(message.role)


def _arguments(text: str) -> dict[str, object]:
    """Returns arguments as the object that the API wants, those too that a model wrote as none."""
    held = strict_object(text)
    return {"unreadable": text} if held is None else {**held}


def _tool(tool: ours.Tool) -> ToolParam:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": {**(strict_object(tool.parameters) or {})},
    }


def _tool_choice(choice: ours.ToolChoice) -> ToolChoiceParam:
    match choice.mode:
        case "auto":
            return {"type": "auto"}
        case "none":
            return {"type": "none"}
        case "required":
            return {"type": "any"}
        case "tool":
            return {"type": "tool", "name": choice.name}
        case _:
            assert_never(choice.mode)


def _result(
    assembly: Assembly, model: str, answer_id: str, stop: str | None, counts: _Counts, *, fenced: bool
) -> LLMResult:
    return checked(
        LLMResult(
            text=without_fences(assembly.text) if fenced else assembly.text,
            provider=ANTHROPIC,
            model=model,
            input_tokens=counts.input,
            output_tokens=counts.output,
            cached_input_tokens=counts.read,
            cache_write_tokens=counts.written,
            stop_reason=_STOP.get(stop or "", "stop"),
            tool_calls=assembly.tool_calls,
            reasoning_tokens=counts.thinking,
            response_id=answer_id,
        )
    )


def _or(count: int | None, known: int) -> int:
    return known if count is None else count
