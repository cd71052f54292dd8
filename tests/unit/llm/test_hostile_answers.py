"""What providers must not be able to do with an answer: fill the memory, break the service, lead a prompt elsewhere."""

import gzip
import json
from collections.abc import Callable

import pytest
from support.provider_streams import Asked, JsonObject, anthropic_events, openai_events
from support.providers import ProviderStandIn, Reply, chat_completion, message

from loom.llm.v1 import llm_pb2 as pb
from loom_common.providers import FailureKind, ProviderError, http
from loom_llm.api.translation import end_to_proto, fragment_to_proto, result_to_proto
from loom_llm.domain.messages import ChatRequest, Delta, LLMResult, Message
from loom_llm.providers.checking import MAX_ANSWER_CHARS
from loom_llm.providers.shaped import ShapedClient

MakeClient = Callable[..., ShapedClient]

BOTH = pytest.mark.parametrize("provider", ["openai", "anthropic"])
QUESTION = ChatRequest((Message("user", "hi"),))
GZIP = {"content-encoding": "gzip"}
EVENTS = {"content-type": "text/event-stream"}


def events(provider: str, *args: object, **more: object) -> list[str]:
    make = openai_events if provider == "openai" else anthropic_events
    return make(*args, **more)  # type: ignore[arg-type]  # both take them


async def listen(client: ShapedClient) -> list[Delta]:
    """Reads a stream, and turns each piece of it into the contract's message as the service does."""
    deltas = [delta async for delta in client.chat(QUESTION)]
    for delta in deltas:
        pb.ChatResponse(
            text=delta.text,
            tool_calls=[fragment_to_proto(one) for one in delta.tool_calls],
            end=end_to_proto(delta.result),
        )
    return deltas


async def failing(client: ShapedClient, *, stream: bool) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await (listen(client) if stream else client.complete("", "hi"))
    return caught.value


@BOTH
async def test_a_whole_answer_that_unpacks_without_end_is_broken_off(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply(body=gzip.compress(b" " * (http.MAX_ANSWER_BYTES + 1)), headers=GZIP))
    assert (await failing(make_client(provider), stream=False)).kind is FailureKind.CONNECTION


@BOTH
async def test_an_event_that_unpacks_without_end_is_broken_off(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    start = "".join(events(provider, "one")[:3]).encode()
    bomb = gzip.compress(start + b"data: " + b"x" * http.MAX_EVENT_BYTES)
    stand_in.script(Reply(body=bomb, headers={**GZIP, **EVENTS}))
    assert (await failing(make_client(provider), stream=True)).kind is FailureKind.CONNECTION


@BOTH
async def test_a_stream_that_unpacks_without_end_is_broken_off(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_STREAM_BYTES", 1 << 18)
    first, *_, last = events(provider, "one two three")[:4]
    bomb = gzip.compress(f"{first}{last * 4000}".encode())
    stand_in.script(Reply(body=bomb, headers={**GZIP, **EVENTS}))
    assert (await failing(make_client(provider), stream=True)).kind is FailureKind.CONNECTION


@BOTH
async def test_a_packed_stream_is_read(provider: str, stand_in: ProviderStandIn, make_client: MakeClient) -> None:
    body = "".join(events(provider, "one two")).encode()
    stand_in.script(Reply(body=gzip.compress(body), headers={**GZIP, **EVENTS}))
    assert "".join(delta.text for delta in await listen(make_client(provider))) == "one two"


@BOTH
@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_goes_nowhere_but_where_it_was_sent(
    provider: str, stream: bool, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    async with ProviderStandIn().running() as other:
        stand_in.script(Reply(307, headers={"location": f"http://127.0.0.1:{other.port}/v1/chat/completions"}))
        error = await failing(make_client(provider), stream=stream)
        assert other.requests == []
    assert (error.kind, error.status) == (FailureKind.STATUS, 307)


@BOTH
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", ["[" * 100_000, '{"choices": ' * 50_000, '{"content": ' + "[" * 50_000])
async def test_an_answer_nested_without_end_cannot_be_read(
    provider: str, stream: bool, body: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    if stream:
        event = f"event: message_start\ndata: {body}\n\n"
        stand_in.script(Reply(events=[event]))
    else:
        stand_in.script(Reply(body=body))
    assert (await failing(make_client(provider), stream=stream)).kind is FailureKind.MALFORMED


def whole_answer(provider: str, text: str, calls: tuple[Asked, ...] = (), **usage: int) -> JsonObject:
    if provider == "openai":
        return chat_completion(text, calls=calls, **usage)
    return message(text, calls=calls, **usage)


@BOTH
async def test_counts_and_texts_beyond_any_that_was_asked_for_are_no_answer(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    counts = {"prompt_tokens": 10**10} if provider == "openai" else {"input_tokens": 10**10}
    bodies = [
        whole_answer(provider, "x", **counts),
        whole_answer(provider, "x" * (MAX_ANSWER_CHARS + 1)),
        whole_answer(provider, "", tuple(Asked(f"c{at}", "clock", "{}") for at in range(129))),
    ]
    client = make_client(provider)
    for body in bodies:
        stand_in.script(Reply(body=body))
        assert (await failing(client, stream=False)).kind is FailureKind.MALFORMED


@BOTH
async def test_the_name_of_a_model_is_cut_where_no_message_could_carry_it(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    name = "m" * 100_000
    stand_in.script(Reply(body={**whole_answer(provider, "x"), "model": name}))
    assert (await make_client(provider).complete("", "hi")).model == name[:128]
    stand_in.script(Reply(events=events(provider, "x", model=name)))
    result = (await listen(make_client(provider)))[-1].result
    assert result is not None
    assert result.model == name[:128]


@BOTH
async def test_halves_of_characters_are_joined_and_lone_ones_replaced(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    calls = (Asked("c1", "clock", '{"a": "\ud83d\ude00"}'),)
    stand_in.script(Reply(body=whole_answer(provider, "a\ud83d\ude00b\ude00c\ud83d", calls)))
    result = await make_client(provider).complete("", "hi")
    assert result.text == "a😀b\ufffdc\ufffd"
    assert json.loads(result.tool_calls[0].arguments) == {"a": "😀"}
    result_to_proto(result)

    # One word is one piece: the halves come in pieces of their own.
    pieces = [event.replace(" @", "\\ude00") for event in events(provider, "a\ud83d @ b\ude00 \ud83d")]
    stand_in.script(Reply(events=pieces))
    deltas = await listen(make_client(provider))
    last = deltas[-1].result
    assert "".join(delta.text for delta in deltas) == "a😀 b\ufffd \ufffd"
    assert isinstance(last, LLMResult)
    assert last.text == "a😀 b\ufffd \ufffd"


@pytest.mark.parametrize(
    "delta",
    [
        {"content": 7},
        {"content": ["text"]},
        {"tool_calls": [{"index": 2**40, "id": "c", "function": {"name": "clock"}}]},
        {"tool_calls": [{"index": -1, "id": "c", "function": {"name": "clock"}}]},
        {"tool_calls": [{"index": [], "id": "c", "function": {"name": "clock"}}]},
        {"tool_calls": [{"index": 0, "id": 7, "function": {"name": "clock"}}]},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": {"a": 1}, "arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "clock", "arguments": {"a": 1}}}]},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": "{}"}}]},
        {"tool_calls": "clock"},
        {"tool_calls": {"0": {}}},
    ],
)
async def test_a_piece_of_a_stream_of_another_kind_is_a_malformed_failure(
    delta: JsonObject, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    chunk = {"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
    stand_in.script(Reply(events=[f"data: {json.dumps(chunk)}\n\n", *openai_events("x")]))
    assert (await failing(make_client("openai"), stream=True)).kind is FailureKind.MALFORMED


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_start", "message": None},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": 7}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ["x"]}},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_start", "index": [], "content_block": {"type": "tool_use", "id": "c", "name": "x"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": 7, "name": "x"}},
        {"type": "message_delta", "delta": {"stop_reason": ["end_turn"]}, "usage": {"output_tokens": 1}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": "many"}},
    ],
)
async def test_an_event_of_another_kind_is_a_malformed_failure(
    event: JsonObject, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    start, *_, stop = anthropic_events("x")
    sent = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
    stand_in.script(Reply(events=[start, sent, stop]))
    assert (await failing(make_client("anthropic"), stream=True)).kind is FailureKind.MALFORMED


async def test_calls_without_names_of_their_own_get_one_in_their_first_piece(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    def chunk(*calls: JsonObject) -> str:
        held = {"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"tool_calls": calls}}]}
        return f"data: {json.dumps(held)}\n\n"

    # Neither identifiers nor places, as some compatible servers send them.
    both = chunk({"function": {"name": "clock", "arguments": "{"}}, {"function": {"name": "day", "arguments": "{}"}})
    more = chunk({"index": 0, "function": {"arguments": "}"}})
    stand_in.script(Reply(events=[both, more, *openai_events(stop="tool_calls")]))
    deltas = await listen(make_client("openai"))
    named = [(piece.index, piece.id, piece.name) for delta in deltas for piece in delta.tool_calls]
    assert named == [(0, "call_0", "clock"), (1, "call_1", "day"), (0, "", "")]
    result = deltas[-1].result
    assert result is not None
    assert [(call.id, call.arguments) for call in result.tool_calls] == [("call_0", "{}"), ("call_1", "{}")]


@BOTH
@pytest.mark.parametrize(
    "words",
    [
        "max_tokens must be below " + "9" * 100_000,
        "temperature " * 100_000 + "is unsupported",
        "max_tokens: 1" + ",000" * 100_000,
        {"not": "words"},
    ],
)
async def test_a_refusal_in_endless_words_is_a_refusal(
    provider: str, words: object, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    reply = Reply(400, {"error": {"type": "invalid_request_error", "message": words}})  # type: ignore[dict-item]  # any
    stand_in.script(*[reply] * 20)
    error = await failing(make_client(provider), stream=False)
    assert (error.kind, error.status) == (FailureKind.STATUS, 400)
