"""Turns the contract's messages into the service's own and back."""

import json
from typing import TypeAlias, cast

from loom.llm.v1 import llm_pb2 as pb
from loom_common.errors import FieldViolation, InvalidArgument
from loom_common.prompts import reference
from loom_common.telemetry.genai import PromptRef
from loom_llm.app.completion import Prompt
from loom_llm.domain.cache_key import CacheUse
from loom_llm.domain.messages import (
    DEFAULT_MAX_TOKENS,
    ChatRequest,
    LLMResult,
    Message,
    ResponseFormat,
    Role,
    Tool,
    ToolCall,
    ToolCallFragment,
    ToolChoice,
)

_Asked: TypeAlias = pb.CompleteRequest | pb.StreamCompleteRequest | pb.ChatRequest


def prompt_from_proto(request: pb.CompleteRequest) -> Prompt:
    """Returns the prompt to complete."""
    return Prompt(
        request.system,
        request.user,
        _max_tokens(request),
        _response_format(request),
        model=request.model,
        cache=_cache_use(request.cache) if request.HasField("cache") else None,
        reference=reference_from_proto(request),
    )


def stream_request_from_proto(request: pb.StreamCompleteRequest) -> ChatRequest:
    """Returns the request of one prompt."""
    return ChatRequest.of_prompt(request.system, request.user, _max_tokens(request), _response_format(request))


def chat_request_from_proto(request: pb.ChatRequest) -> ChatRequest:
    """Returns the conversation to continue.

    Raises:
        InvalidArgument: It is none that a model could continue.
    """
    violations = _violations(request)
    if violations:
        raise InvalidArgument("The conversation cannot be continued as it is.", fields=violations)
    choice = request.tool_choice
    return ChatRequest(
        tuple(_message(message) for message in request.messages),
        request.system,
        tuple(Tool(tool.name, tool.description, tool.parameters) for tool in request.tools),
        _tool_choice(choice) if request.HasField("tool_choice") else ToolChoice(),
        _max_tokens(request),
        _response_format(request),
    )


def reference_from_proto(request: _Asked) -> PromptRef | None:
    """Returns which prompt of Loom's is sent; None where the request does not say it."""
    if not request.HasField("prompt"):
        return None
    prompt = request.prompt
    return reference(prompt.family, prompt.name, prompt.version)


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
        stop_reason=result.stop_reason,
    )


def end_to_proto(result: LLMResult | None) -> pb.AnswerEnd | None:
    """Returns how a stream ended; None before its end."""
    if result is None:
        return None
    return pb.AnswerEnd(
        stop_reason=result.stop_reason,
        input_tokens=result.input_tokens,
        output_tokens=result.output_tokens,
        cached_input_tokens=result.cached_input_tokens,
        cache_write_tokens=result.cache_write_tokens,
        provider=result.provider,
        model=result.model,
    )


def fragment_to_proto(fragment: ToolCallFragment) -> pb.ToolCallDelta:
    """Returns the message for a piece of a call to a tool."""
    return pb.ToolCallDelta(index=fragment.index, id=fragment.id, name=fragment.name, arguments=fragment.arguments)


def _cache_use(use: pb.CacheUse) -> CacheUse:
    return CacheUse(
        use.enabled if use.HasField("enabled") else None,
        tuple(use.window_keys),
        tuple(use.tags),
        tuple(use.namespaces),
        use.traffic_class,
    )


def _max_tokens(request: _Asked) -> int:
    return request.max_tokens if request.HasField("max_tokens") else DEFAULT_MAX_TOKENS


def _response_format(request: _Asked) -> ResponseFormat | None:
    return {"type": "json_object"} if request.response_format == "json_object" else None


def _message(message: pb.ChatMessage) -> Message:
    return Message(
        cast(Role, message.role),  # one of them, by the contract's rule
        message.text,
        tuple(ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls),
        message.tool_call_id,
    )


def _tool_choice(choice: pb.ToolChoice) -> ToolChoice:
    match choice.mode:
        case "none" | "required":
            return ToolChoice(choice.mode)
        case "tool":
            return ToolChoice("tool", choice.name)
        case _:
            return ToolChoice()


def _violations(request: pb.ChatRequest) -> list[FieldViolation]:
    """Returns what the contract's rules on single fields cannot say."""
    found = []
    asked: set[str] = set()
    for at, message in enumerate(request.messages):
        place = f"messages[{at}]"
        if message.role == "assistant":
            asked.update(call.id for call in message.tool_calls)
        elif message.tool_calls:
            found.append(FieldViolation(f"{place}.tool_calls", "only an assistant asks for calls"))
        if message.role == "tool" and message.tool_call_id not in asked:
            found.append(FieldViolation(f"{place}.tool_call_id", "must name a call that an earlier turn asked for"))
        if message.role != "tool" and not message.text and not message.tool_calls:
            found.append(FieldViolation(f"{place}.text", "must say something"))
    if request.messages[0].role != "user":
        found.append(FieldViolation("messages[0].role", "must be user: a conversation begins with one"))
    if request.messages[-1].role == "assistant":
        found.append(FieldViolation(f"messages[{len(request.messages) - 1}].role", "must not be the assistant's turn"))
    names = [tool.name for tool in request.tools]
    if len(set(names)) != len(names):
        found.append(FieldViolation("tools", "must not hold a name twice"))
    found += [
        FieldViolation(f"tools[{at}].parameters", "must be a JSON object")
        for at, tool in enumerate(request.tools)
        if not _is_object(tool.parameters)
    ]
    choice = request.tool_choice
    if choice.mode == "tool" and choice.name not in names:
        found.append(FieldViolation("tool_choice.name", "must name one of the tools"))
    if choice.mode in {"required", "tool"} and not names:
        found.append(FieldViolation("tool_choice.mode", "needs tools"))
    return found


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
