"""Turns the contract's messages into the service's own and back."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias, cast

from loom.llm.v1 import llm_pb2 as pb
from loom_common.errors import FieldViolation, InvalidArgument
from loom_common.json_text import strict_object
from loom_common.prompts import reference
from loom_common.telemetry.genai import PromptRef
from loom_llm.app.completion import Prompt
from loom_llm.app.rerank import Reranking
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
from loom_llm.domain.ranking import Ranking

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


def reranking_from_proto(request: pb.RerankRequest) -> Reranking:
    """Returns what is to be reranked."""
    return Reranking(request.reranker, request.query, tuple(request.documents), named=request.named)


def ranking_to_proto(ranking: Ranking, top_n: int | None) -> pb.RerankResponse:
    """Returns the best `top_n` of a ranking; None for all."""
    return pb.RerankResponse(
        results=[pb.RerankResult(index=one.index, relevance_score=one.score) for one in ranking.results[:top_n]],
        provider=ranking.provider,
        model=ranking.model,
        reranked=ranking.reranked,
    )


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
    return [*_turn_violations(request.messages), *_tool_violations(request)]


def _turn_violations(messages: Sequence[pb.ChatMessage]) -> Iterator[FieldViolation]:
    if messages[0].role != "user":
        yield FieldViolation("messages[0].role", "must be user: a conversation begins with one")
    waiting: set[str] = set()
    for at, message in enumerate(messages):
        place = f"messages[{at}]"
        ids = [call.id for call in message.tool_calls]
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                yield FieldViolation(f"{place}.tool_call_id", "must name a call of the turn before without a result")
            waiting.discard(message.tool_call_id)
        else:
            if waiting:
                yield FieldViolation(f"{place}.role", "must be tool: calls of the turn before have no result yet")
            if not message.text and not ids:
                yield FieldViolation(f"{place}.text", "must say something")
            waiting = set(ids)
        if ids and message.role != "assistant":
            yield FieldViolation(f"{place}.tool_calls", "only an assistant asks for calls")
        if len(set(ids)) != len(ids):
            yield FieldViolation(f"{place}.tool_calls", "must not hold an id twice")
    last = len(messages) - 1
    if messages[last].role == "assistant":
        yield FieldViolation(f"messages[{last}].role", "must not be the assistant's turn")
    elif waiting:
        yield FieldViolation(f"messages[{last}]", "must be followed by the results of the other calls")


def _tool_violations(request: pb.ChatRequest) -> Iterator[FieldViolation]:
    names = [tool.name for tool in request.tools]
    if len(set(names)) != len(names):
        yield FieldViolation("tools", "must not hold a name twice")
    for at, tool in enumerate(request.tools):
        if strict_object(tool.parameters) is None:
            yield FieldViolation(f"tools[{at}].parameters", "must be a JSON object")
    choice = request.tool_choice
    if choice.mode == "tool" and choice.name not in names:
        yield FieldViolation("tool_choice.name", "must name one of the tools")
    if choice.mode in {"required", "tool"} and not names:
        yield FieldViolation("tool_choice.mode", "needs tools")
