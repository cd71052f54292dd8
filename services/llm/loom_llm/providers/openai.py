"""OpenAI, and servers that speak its chat completions, through the official SDK."""

from collections.abc import AsyncGenerator, Mapping
from typing import Final, cast

import openai
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageParam,
    ChatCompletionToolChoiceOptionParam,
    ChatCompletionToolParam,
)
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.completion_usage import CompletionUsage
from openai.types.shared import ReasoningEffort

from loom_common.json_text import strict_object
from loom_common.providers import FailureKind, ProviderError
from loom_llm.domain.messages import (
    Assembly,
    ChatRequest,
    Delta,
    LLMResult,
    Message,
    StopReason,
    Tool,
    ToolCallFragment,
    ToolChoice,
)
from loom_llm.domain.selection import OPENAI
from loom_llm.domain.traits import REASONING_EFFORT, STREAM_OPTIONS, TEMPERATURE, WISHED_TEMPERATURE, Shape
from loom_llm.providers.checking import checked
from loom_llm.providers.sdk import Endpoint, SdkErrors

_LOWEST_EFFORT: Final = "none"

_ERRORS: Final = SdkErrors(
    OPENAI, openai.APIStatusError, openai.APITimeoutError, openai.APIConnectionError, openai.OpenAIError
)
_STOP: Final[Mapping[str, StopReason]] = {
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refusal",
}


class OpenAIWire:
    """Speaks `chat/completions`.

    Args:
        endpoint: Where, and how it is reached.
        effort: Reasoning effort to begin with instead of the lowest.
    """

    provider = OPENAI

    def __init__(self, endpoint: Endpoint, *, effort: str | None = None) -> None:
        self._effort = effort or _LOWEST_EFFORT
        http = endpoint.opened()
        self._sdk = openai.AsyncOpenAI(
            api_key=endpoint.api_key,
            base_url=endpoint.base_url,
            max_retries=0,
            timeout=http.timeout,
            http_client=http,
        )
        # `OPENAI_CUSTOM_HEADERS`, `OPENAI_ORG_ID` and `OPENAI_PROJECT_ID` would put headers into every request, over
        # the key's too. No argument stops it.
        self._sdk._custom_headers = {}
        self._sdk.organization = self._sdk.project = None

    def wished(self) -> Shape:
        """See `Wire.wished`."""
        return Shape("max_completion_tokens", effort=self._effort)

    async def send(self, model: str, request: ChatRequest, shape: Shape, cap: int) -> LLMResult:
        """See `Wire.send`."""
        params = _params(model, request, shape, cap)
        with _ERRORS.translated():
            answer: object = await self._sdk.chat.completions.create(**params)
            # The SDK checks no types: an answer may be text, and any field anything.
            if not isinstance(answer, ChatCompletion):
                raise ProviderError(OPENAI, FailureKind.MALFORMED)
            choice = answer.choices[0]
            said = choice.message
            assembly = Assembly()
            calls = [call for call in said.tool_calls or () if isinstance(call, ChatCompletionMessageFunctionToolCall)]
            fragments = [
                ToolCallFragment(at, call.id, call.function.name, call.function.arguments)
                for at, call in enumerate(calls)
            ]
            assembly.add(Delta(said.content or said.refusal or "", tuple(fragments)))
            stop = "content_filter" if said.refusal else choice.finish_reason
            return _result(assembly, answer.model or model, stop, answer.usage, answer.id)

    async def stream(self, model: str, request: ChatRequest, shape: Shape, cap: int) -> AsyncGenerator[Delta, None]:
        """See `Wire.stream`."""
        assembly, stop, usage, answering, answer_id = Assembly(), None, None, model, ""
        params = _params(model, request, shape, cap)
        if shape.carries(STREAM_OPTIONS):
            params["stream_options"] = {"include_usage": True}
        with _ERRORS.translated():
            chunks = await self._sdk.chat.completions.create(**params, stream=True)
            async with chunks:
                async for chunk in chunks:
                    delta, ended = _delta(chunk)
                    stop, usage = ended or stop, chunk.usage or usage
                    answering, answer_id = chunk.model or answering, chunk.id or answer_id
                    assembly.add(delta)
                    if delta.visible:
                        yield delta
            if stop is None:
                raise ProviderError(OPENAI, FailureKind.CONNECTION)  # it broke off between two events
            result = _result(assembly, answering, stop, usage, answer_id)
        yield Delta(result=result)

    async def aclose(self) -> None:
        """See `Wire.aclose`."""
        await self._sdk.close()


def _params(model: str, request: ChatRequest, shape: Shape, cap: int) -> CompletionCreateParamsBase:
    messages: list[ChatCompletionMessageParam] = [_message(one) for one in request.messages]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    params: CompletionCreateParamsBase = {"model": model, "messages": messages}
    if shape.cap_field == "max_tokens":
        params["max_tokens"] = cap
    else:
        params["max_completion_tokens"] = cap
    if shape.carries(TEMPERATURE):
        params["temperature"] = WISHED_TEMPERATURE
    if shape.carries(REASONING_EFFORT) and shape.effort is not None:
        params["reasoning_effort"] = cast(ReasoningEffort, shape.effort)  # what a provider listed may be newer
    if request.wants_json:
        params["response_format"] = {"type": "json_object"}
    if request.tools:
        params["tools"] = [_tool(one) for one in request.tools]
        if request.tool_choice.mode != "auto":
            params["tool_choice"] = _tool_choice(request.tool_choice)
    return params


def _message(message: Message) -> ChatCompletionMessageParam:
    match message.role:
        case "user":
            return {"role": "user", "content": message.text}
        case "tool":
            return {"role": "tool", "content": message.text, "tool_call_id": message.tool_call_id}
        case "assistant" if not message.tool_calls:
            return {"role": "assistant", "content": message.text}
        case "assistant":
            return {
                "role": "assistant",
                "content": message.text or None,
                "tool_calls": [
                    {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                    for call in message.tool_calls
                ],
            }


def _tool(tool: Tool) -> ChatCompletionToolParam:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": {**(strict_object(tool.parameters) or {})},
        },
    }


def _tool_choice(choice: ToolChoice) -> ChatCompletionToolChoiceOptionParam:
    if choice.mode == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def _delta(chunk: ChatCompletionChunk) -> tuple[Delta, str | None]:
    """Returns what a chunk adds, and why the answer ended where it says so."""
    if not chunk.choices:  # the last one holds the usage alone
        return Delta(), None
    choice = chunk.choices[0]
    said = choice.delta
    fragments = [
        ToolCallFragment(
            at if call.index is None else call.index,  # servers exist that leave it out
            call.id or "",
            (call.function.name or "") if call.function is not None else "",
            (call.function.arguments or "") if call.function is not None else "",
        )
        for at, call in enumerate(said.tool_calls or ())
    ]
    ended = "content_filter" if said.refusal else choice.finish_reason
    return Delta(said.content or said.refusal or "", tuple(fragments)), ended


def _result(
    assembly: Assembly, model: str, stop: str | None, usage: CompletionUsage | None, answer_id: str
) -> LLMResult:
    calls = assembly.tool_calls
    prompt = usage.prompt_tokens_details if usage is not None else None
    answer = usage.completion_tokens_details if usage is not None else None
    reason = _STOP.get(stop or "", "stop")
    return checked(
        LLMResult(
            text=assembly.text,
            provider=OPENAI,
            model=model,
            input_tokens=usage.prompt_tokens if usage is not None else 0,
            output_tokens=usage.completion_tokens if usage is not None else 0,
            cached_input_tokens=(prompt.cached_tokens or 0) if prompt is not None else 0,
            cache_write_tokens=(prompt.cache_write_tokens or 0) if prompt is not None else 0,
            # Servers exist that end an answer with calls by `stop`.
            stop_reason="tool_calls" if calls and reason == "stop" else reason,
            tool_calls=calls,
            reasoning_tokens=(answer.reasoning_tokens or 0) if answer is not None else 0,
            response_id=answer_id,
        )
    )
