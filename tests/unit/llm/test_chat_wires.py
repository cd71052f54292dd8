"""Conversations with tools in both wire formats, through the official SDKs, unary and streamed."""

import asyncio
import json
import traceback
from collections.abc import Callable
from contextlib import aclosing

import httpx2
import pytest
from support.provider_streams import (
    Asked,
    JsonObject,
    anthropic_error_event,
    anthropic_events,
    openai_error_event,
    openai_events,
)
from support.providers import Fault, ProviderStandIn, Reply, chat_completion, message

from loom_common.errors import ModelCallDeferred
from loom_common.providers import FailureKind, ProviderError
from loom_llm.domain.messages import (
    Assembly,
    ChatRequest,
    Delta,
    LLMResult,
    Message,
    ResponseFormat,
    Tool,
    ToolCall,
    ToolChoice,
)
from loom_llm.providers.shaped import ShapedClient

MakeClient = Callable[..., ShapedClient]

BOTH = pytest.mark.parametrize("provider", ["openai", "anthropic"])
JSON: ResponseFormat = {"type": "json_object"}
WEATHER = Tool("weather", "Tells the weather.", '{"type": "object", "properties": {"town": {"type": "string"}}}')
CLOCK = Tool("clock", "Tells the time.", '{"type": "object"}')
CALLS = (Asked("c1", "weather", '{"town": "Köln"}'), Asked("c2", "clock", "{}"))
ASKED = tuple(ToolCall(call.id, call.name, call.arguments) for call in CALLS)
QUESTION = ChatRequest((Message("user", "hi"),), "be brief", tools=(WEATHER, CLOCK))
AFTER_CALLS = ChatRequest(
    (
        Message("user", "hi"),
        Message("assistant", "I look.", ASKED),
        Message("tool", "rain", tool_call_id="c1"),
        Message("tool", "", tool_call_id="c2"),
        Message("user", "and?"),
    ),
    tools=(WEATHER,),
)


def events(provider: str, *args: object, **more: object) -> list[str]:
    make: Callable[..., list[str]] = openai_events if provider == "openai" else anthropic_events
    return make(*args, **more)


async def read(client: ShapedClient, request: ChatRequest = QUESTION) -> tuple[list[Delta], LLMResult]:
    deltas = [delta async for delta in client.chat(request)]
    result = deltas[-1].result
    assert result is not None
    assert all(delta.result is None for delta in deltas[:-1])
    return deltas, result


@BOTH
async def test_a_streamed_answer_comes_in_pieces_and_ends_with_the_whole_and_its_cost(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply(events=events(provider, "one two three")))
    deltas, result = await read(make_client(provider))
    assert [delta.text for delta in deltas if delta.text] == ["one", " two", " three"]
    assert (result.text, result.stop_reason, result.tool_calls) == ("one two three", "stop", ())
    assert (result.provider, result.input_tokens, result.output_tokens) == (provider, 11, 7)
    assert stand_in.requests[0].json["stream"] is True


@BOTH
async def test_parallel_calls_to_tools_are_put_together_from_their_fragments(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply(events=events(provider, "I look.", CALLS)))
    deltas, result = await read(make_client(provider))
    assert (result.text, result.stop_reason) == ("I look.", "tool_calls")
    assert result.tool_calls == ASKED
    assembly = Assembly()
    for delta in deltas:
        assembly.add(delta)
    assert assembly.tool_calls == ASKED
    assert max(len(fragment.arguments) for delta in deltas for fragment in delta.tool_calls) < len(ASKED[0].arguments)


@BOTH
async def test_calls_to_tools_are_read_from_a_whole_answer_too(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    whole = (
        chat_completion(None, calls=CALLS, stop="tool_calls")
        if provider == "openai"
        else message("", calls=CALLS, stop="tool_use")
    )
    stand_in.script(Reply(body=whole))
    result = await make_client(provider).complete("", "hi")
    assert [(call.id, call.name, json.loads(call.arguments)) for call in result.tool_calls] == [
        (call.id, call.name, json.loads(call.arguments)) for call in ASKED
    ]
    assert result.stop_reason == "tool_calls"


async def test_openai_gets_tools_and_the_results_of_calls_in_its_own_form(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    await read(make_client("openai"), AFTER_CALLS)
    sent = stand_in.requests[0].json
    assert sent["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "Tells the weather.",
                "parameters": json.loads(WEATHER.parameters),
            },
        }
    ]
    calls = [
        {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}} for one in ASKED
    ]
    assert sent["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "content": "rain", "tool_call_id": "c1"},
        {"role": "tool", "content": "", "tool_call_id": "c2"},
        {"role": "user", "content": "and?"},
    ]
    assert sent["stream_options"] == {"include_usage": True}


async def test_anthropic_gets_all_results_of_calls_in_the_one_turn_after_them(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    await read(make_client("anthropic"), AFTER_CALLS)
    sent = stand_in.requests[0].json
    assert sent["tools"] == [
        {"name": "weather", "description": "Tells the weather.", "input_schema": json.loads(WEATHER.parameters)}
    ]
    uses = [{"type": "tool_use", "id": one.id, "name": one.name, "input": json.loads(one.arguments)} for one in ASKED]
    assert sent["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, *uses]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "rain"},
                {"type": "tool_result", "tool_use_id": "c2", "content": ""},
                {"type": "text", "text": "and?"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ("{half", {"unreadable": "{half"}),
        ('{"x": NaN}', {"unreadable": '{"x": NaN}'}),
        ('{"x": [' * 70, {"unreadable": '{"x": [' * 70}),
        ('"text"', {"unreadable": '"text"'}),
        ('{"x": "\\ud800"}', {"x": "\ufffd"}),
    ],
)
async def test_arguments_that_a_model_wrote_badly_are_sent_back_without_breaking_the_conversation(
    arguments: str, sent: JsonObject, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    bad = (Message("user", "hi"), Message("assistant", "", (ToolCall("c1", "clock", arguments),)))
    request = ChatRequest((*bad, Message("tool", "unreadable arguments", tool_call_id="c1")), tools=(CLOCK,))
    for provider in ("openai", "anthropic"):
        await read(make_client(provider), request)
    openai, anthropic = (json.loads(json.dumps(one.json["messages"])) for one in stand_in.requests)
    assert openai[1]["tool_calls"][0]["function"]["arguments"] == arguments
    assert anthropic[1]["content"][0]["input"] == sent


@pytest.mark.parametrize(
    ("choice", "openai", "anthropic"),
    [
        (ToolChoice(), None, None),
        (ToolChoice("none"), "none", {"type": "none"}),
        (ToolChoice("required"), "required", {"type": "any"}),
        (
            ToolChoice("tool", "clock"),
            {"type": "function", "function": {"name": "clock"}},
            {"type": "tool", "name": "clock"},
        ),
    ],
)
async def test_the_choice_of_tools_is_said_in_each_providers_words(
    choice: ToolChoice, openai: object, anthropic: object, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    request = ChatRequest(QUESTION.messages, tools=QUESTION.tools, tool_choice=choice)
    await read(make_client("openai"), request)
    await read(make_client("anthropic"), request)
    assert [one.json.get("tool_choice") for one in stand_in.requests] == [openai, anthropic]


@pytest.mark.parametrize(
    ("provider", "word", "reason"),
    [
        ("openai", "stop", "stop"),
        ("openai", "length", "length"),
        ("openai", "content_filter", "refusal"),
        ("openai", "a_new_word", "stop"),
        ("anthropic", "end_turn", "stop"),
        ("anthropic", "stop_sequence", "stop"),
        ("anthropic", "max_tokens", "length"),
        ("anthropic", "model_context_window_exceeded", "length"),
        ("anthropic", "refusal", "refusal"),
    ],
)
async def test_why_an_answer_ended_is_said_in_our_words(
    provider: str, word: str, reason: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    whole = chat_completion("x", stop=word) if provider == "openai" else message("x", stop=word)
    stand_in.script(Reply(events=events(provider, "x", stop=word)), Reply(body=whole))
    client = make_client(provider)
    assert (await read(client))[1].stop_reason == reason
    assert (await client.complete("", "hi")).stop_reason == reason


async def test_json_that_anthropic_streams_comes_without_its_fence(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply(events=anthropic_events('```json\n{"a": 1}\n```')))
    request = ChatRequest(QUESTION.messages, response_format=JSON)
    deltas, result = await read(make_client("anthropic"), request)
    assert "".join(delta.text for delta in deltas) == result.text == '{"a": 1}'


async def test_json_from_openai_is_streamed_as_it_comes(stand_in: ProviderStandIn, make_client: MakeClient) -> None:
    stand_in.script(Reply(events=openai_events('{"a": 1}')))
    deltas, _ = await read(make_client("openai"), ChatRequest(QUESTION.messages, response_format=JSON))
    assert [delta.text for delta in deltas if delta.text] == ['{"a":', " 1}"]
    assert stand_in.requests[0].json["response_format"] == {"type": "json_object"}


async def test_anthropic_tells_the_size_of_the_prompt_at_the_begin(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    deltas, _ = await read(make_client("anthropic"))
    assert deltas[0].input_tokens == 11


@BOTH
@pytest.mark.parametrize(
    ("fault", "kinds", "timeout_s"),
    [
        (Fault.CUT, {FailureKind.CONNECTION}, 30),
        (Fault.HALF_BODY, {FailureKind.CONNECTION, FailureKind.MALFORMED}, 30),
        (Fault.STALL, {FailureKind.TIMEOUT}, 1),
    ],
)
async def test_a_stream_that_breaks_off_fails_after_what_it_showed(
    provider: str,
    fault: Fault,
    kinds: set[FailureKind],
    timeout_s: float,
    stand_in: ProviderStandIn,
    make_client: MakeClient,
) -> None:
    stand_in.script(Reply(events=events(provider, "one two three")[:-3], fault=fault))
    seen: list[str] = []

    async def listen() -> None:
        async for delta in make_client(provider, timeout_s=timeout_s).chat(QUESTION):
            seen.append(delta.text)  # noqa: PERF401 - what came before the failure is what is looked at

    with pytest.raises(ProviderError) as caught:
        await listen()
    assert "one" in seen
    assert caught.value.kind in kinds


@BOTH
async def test_a_stream_that_ends_without_an_end_is_no_answer(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    whole = events(provider, "one two")
    short = whole[:3] if provider == "openai" else whole[:4]
    stand_in.script(Reply(events=short))
    with pytest.raises(ProviderError) as caught:
        await read(make_client(provider))
    assert caught.value.kind is FailureKind.CONNECTION


@pytest.mark.parametrize(
    ("provider", "kind", "status"),
    [
        ("openai", "rate_limit_error", 429),
        ("openai", "server_error", 500),
        ("anthropic", "overloaded_error", 529),
        ("anthropic", "rate_limit_error", 429),
        ("anthropic", "api_error", 500),
    ],
)
async def test_an_error_inside_of_a_stream_has_the_status_that_it_stands_for(
    provider: str, kind: str, status: int, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    error = openai_error_event(kind) if provider == "openai" else anthropic_error_event(kind)
    stand_in.script(Reply(events=[*events(provider, "one two")[:2], error]))
    with pytest.raises(ProviderError) as caught:
        await read(make_client(provider))
    assert (caught.value.kind, caught.value.status) == (FailureKind.STATUS, status)


@BOTH
@pytest.mark.parametrize("garbage", ["data: {half\n\n", "event: message_start\ndata: {half\n\n"])
async def test_an_event_that_cannot_be_read_is_a_malformed_failure(
    provider: str, garbage: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply(events=[garbage]))
    with pytest.raises(ProviderError) as caught:
        await read(make_client(provider))
    assert caught.value.kind in {FailureKind.MALFORMED, FailureKind.CONNECTION}


@BOTH
async def test_closing_a_stream_ends_the_providers(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    first = events(provider, "word")[:4]
    stand_in.script(Reply(events=first, fault=Fault.STALL))
    async with asyncio.timeout(5), aclosing(make_client(provider).chat(QUESTION)) as deltas:
        async for delta in deltas:
            if delta.text:
                break
        assert stand_in.open_streams == 1
    async with asyncio.timeout(5):
        await stand_in.stream_ended.wait()
    assert stand_in.open_streams == 0


@BOTH
@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529])
async def test_a_stream_that_is_refused_at_once_is_a_failure_with_its_status(
    provider: str, status: int, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply.error(status, "a scripted secret", retry_after="3"))
    with pytest.raises(ProviderError) as caught:
        await read(make_client(provider))
    failure = caught.value
    assert (type(failure), failure.kind, failure.status) == (ProviderError, FailureKind.STATUS, status)
    assert failure.retry_after_s == 3.0
    assert "secret" not in "".join(traceback.format_exception(failure))
    assert len(stand_in.requests) == 1


@BOTH
@pytest.mark.parametrize("hook", ["request", "response"])
async def test_a_refusal_of_our_own_inside_of_a_request_comes_out_as_it_is(
    provider: str, hook: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    async def refuse(sent: object) -> None:
        raise ModelCallDeferred("later", retry_after_s=7)

    http = httpx2.AsyncClient(event_hooks={hook: [refuse]})
    client = make_client(provider, http_client=http)
    with pytest.raises(ModelCallDeferred) as caught:
        await client.complete("", "hi")
    assert caught.value.retry_after_s == 7
    with pytest.raises(ModelCallDeferred):
        await read(client)
