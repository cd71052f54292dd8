"""Answers as OpenAI and Anthropic stream them, event by event, with texts and calls to tools."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

JsonObject = dict[str, JsonValue]

DONE = "data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Asked:
    """One call to a tool that the model asks for."""

    id: str
    name: str
    arguments: str


def openai_events(
    text: str = "",
    calls: Sequence[Asked] = (),
    *,
    stop: str | None = None,
    model: str = "gpt-6-luna",
    reasoning: int = 0,
    usage: bool = True,
) -> list[str]:
    """Returns a chat completion in chunks: each word a chunk, the arguments of calls in halves, side by side."""
    deltas: list[JsonObject] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _pieces(text)]
    for at, call in enumerate(calls):
        head: JsonObject = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": at, "id": call.id, "type": "function", "function": head}]})
    for half in (0, 1):
        for at, call in enumerate(calls):
            part: JsonObject = {"arguments": _halves(call.arguments)[half]}
            deltas.append({"tool_calls": [{"index": at, "function": part}]})
    chunks = [_openai_chunk(model, [{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    reason = stop or ("tool_calls" if calls else "stop")
    chunks.append(_openai_chunk(model, [{"index": 0, "delta": {}, "finish_reason": reason}]))
    if usage:
        counts: JsonObject = {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "total_tokens": 18,
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        chunks.append({**_openai_chunk(model, []), "usage": counts})
    return [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + [DONE]


def anthropic_events(
    text: str = "",
    calls: Sequence[Asked] = (),
    *,
    stop: str | None = None,
    model: str = "claude-haiku-4-5",
    thinking: int = 0,
) -> list[str]:
    """Returns a message in events: each word a delta, the arguments of calls in halves."""
    started: JsonObject = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 1},
    }
    events: list[JsonObject] = [{"type": "message_start", "message": started}, {"type": "ping"}]
    blocks: list[tuple[JsonObject, list[JsonObject]]] = []
    if text:
        blocks.append(
            ({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(text)])
        )
    for call in calls:
        deltas: list[JsonObject] = [
            {"type": "input_json_delta", "partial_json": half} for half in ("", *_halves(call.arguments))
        ]
        blocks.append(({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas))
    for at, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": at, "content_block": block})
        events += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": at})
    reason = stop or ("tool_use" if calls else "end_turn")
    counts: JsonObject = {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": thinking}}
    events.append({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": counts})
    events.append({"type": "message_stop"})
    return [_anthropic_event(event) for event in events]


def openai_error_event(kind: str) -> str:
    """Returns an error in the middle of a stream."""
    return f"data: {json.dumps({'error': {'type': kind, 'message': 'scripted', 'code': None}})}\n\n"


def anthropic_error_event(kind: str) -> str:
    """Returns an error in the middle of a stream."""
    return _anthropic_event({"type": "error", "error": {"type": kind, "message": "scripted"}})


def _openai_chunk(model: str, choices: list[JsonValue]) -> JsonObject:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": model,
        "choices": choices,
        "usage": None,
    }


def _anthropic_event(event: JsonObject) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def _pieces(text: str) -> Iterable[str]:
    for at, word in enumerate(text.split(" ")):
        if word or at:
            yield f" {word}" if at else word


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]
