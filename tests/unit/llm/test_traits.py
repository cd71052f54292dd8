"""What is learned of a model from its provider's refusals, as rules and through the SDKs."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.llm import models_of, orphans_of
from support.provider_streams import openai_events
from support.providers import Fault, ProviderStandIn, Received, Reply, chat_completion, message

from loom_common.attribution import Attribution
from loom_common.call import Call, bind
from loom_common.errors import ProviderFailed
from loom_common.ledger import FakeLedgerSink
from loom_common.providers import FailureKind, ProviderError
from loom_llm.app.chat import Chat
from loom_llm.app.completion import Completion, Prompt
from loom_llm.app.gate import Gate
from loom_llm.domain.messages import ChatRequest
from loom_llm.domain.traits import Refusal, Shape, Traits
from loom_llm.providers.shaped import ShapedClient

MakeClient = Callable[..., ShapedClient]

MODEL = "gpt-6-luna"
OPENAI = Shape("max_completion_tokens", effort="none")
ANTHROPIC = Shape("max_tokens", effort="low")


def traits(shape: Shape = OPENAI, *, reserve_max: int = 1000, wait_s: float = 2.0) -> Traits:
    return Traits(MODEL, shape, reserve_max=reserve_max, learning_wait_s=wait_s)


def dropping(shape: Shape, field: str) -> Shape:
    return replace(shape, dropped=frozenset({field}))


@pytest.mark.parametrize(
    ("shape", "refusal", "learned"),
    [
        # The words are those of the providers, as they were seen.
        (
            OPENAI,
            Refusal("Unsupported value: 'temperature' does not support 0 with this model. Only 1 is.", "temperature"),
            dropping(OPENAI, "temperature"),
        ),
        (ANTHROPIC, Refusal("temperature: Extra inputs are not permitted"), dropping(ANTHROPIC, "temperature")),
        (ANTHROPIC, Refusal("`temperature` is deprecated for this model."), dropping(ANTHROPIC, "temperature")),
        (
            ANTHROPIC,
            Refusal("output_config.effort: Extra inputs are not permitted"),
            dropping(ANTHROPIC, "output_config"),
        ),
        (
            OPENAI,
            Refusal("Unrecognized request argument supplied: reasoning_effort"),
            replace(dropping(OPENAI, "reasoning_effort"), effort=None),
        ),
        (
            OPENAI,
            Refusal(
                "Unsupported value: 'none' is not supported with the 'gpt-6-luna' model. Supported values are: "
                "'high', 'low', and 'medium'.",
                "reasoning_effort",
            ),
            replace(OPENAI, effort="low"),
        ),
        (OPENAI, Refusal("stream_options: unknown field"), dropping(OPENAI, "stream_options")),
        (
            OPENAI,
            Refusal("Unrecognized request argument supplied: max_completion_tokens"),
            replace(OPENAI, cap_field="max_tokens"),
        ),
        (
            replace(OPENAI, cap_field="max_tokens"),
            Refusal(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
                "instead.",
                "max_tokens",
            ),
            OPENAI,
        ),
        (
            OPENAI,
            Refusal(
                "max_tokens is too large: 50000. This model supports at most 16384 completion tokens, whereas you "
                "provided 50000.",
                "max_tokens",
            ),
            replace(OPENAI, max_output=16384),
        ),
        (
            ANTHROPIC,
            Refusal(
                "max_tokens: 50000 > 32,000, which is the maximum allowed number of output tokens for "
                "claude-haiku-4-5-20251001"
            ),
            replace(ANTHROPIC, max_output=32_000),
        ),
    ],
)
def test_a_refusal_teaches_what_the_model_takes(shape: Shape, refusal: Refusal, learned: Shape) -> None:
    model = traits(shape)
    assert model.learn(refusal, shape, 50_000)
    assert model.shape == learned


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal("Invalid schema for function 'weather'", "tools[0].function.parameters"),
        Refusal("messages: at least one message is required"),
        # A field that is taken, with a value that is not: another name would not help.
        Refusal("max_completion_tokens must be at least 16", "max_completion_tokens"),
        # The room of prompt and answer together is no limit of the answer.
        Refusal(
            "'max_completion_tokens' is too large: 50000. This model's maximum context length is 4096 tokens.",
            "max_completion_tokens",
        ),
        Refusal("the words max_completion_tokens_of and my_temperature name nothing"),
        Refusal(""),
    ],
)
def test_a_refusal_that_is_about_the_request_teaches_nothing(refusal: Refusal) -> None:
    model = traits()
    assert not model.learn(refusal, OPENAI, 10)
    assert model.shape == OPENAI


def test_a_cap_that_has_neither_name_is_given_up() -> None:
    model = traits()
    assert model.learn(Refusal("Unrecognized argument: max_completion_tokens"), OPENAI, 10)
    assert not model.learn(Refusal("Unrecognized argument: max_tokens"), model.shape, 10)


def test_two_lessons_learned_at_once_both_count() -> None:
    model = traits()
    assert model.learn(Refusal("no", "temperature"), OPENAI, 10)
    assert model.learn(Refusal("no", "reasoning_effort"), OPENAI, 10)
    assert model.shape == Shape(
        "max_completion_tokens", effort=None, dropped=frozenset({"temperature", "reasoning_effort"})
    )
    # A refusal of the shape of before, whose lesson is known, is sent again in that of now.
    assert model.learn(Refusal("no", "temperature"), OPENAI, 10)


def test_twice_the_most_hidden_reasoning_is_kept_free_up_to_the_ceiling() -> None:
    model = traits(reserve_max=1000)
    assert model.cap(100) == 100
    model.reasoned(200)
    model.reasoned(50)
    assert model.cap(100) == 500
    model.reasoned(5000)
    assert model.cap(100) == model.ceiling(100) == 1100
    assert model.learn(Refusal("supports at most 800 completion tokens"), OPENAI, 1100)
    assert model.cap(100) == model.ceiling(100) == 800


class Picky:
    """Refuses what a model does not take, one thing at a time, as the providers do."""

    def __init__(self, *, refused: dict[str, str], efforts: tuple[str, ...] = (), limit: int | None = None) -> None:
        self.refused = refused
        self.efforts = efforts
        self.limit = limit

    def __call__(self, request: Received) -> Reply | None:
        for field, words in self.refused.items():
            if field in request.json:
                return self._no(words, field if "openai" in words else None)
        effort = request.json.get("reasoning_effort")
        if self.efforts and effort is not None and effort not in self.efforts:
            listed = ", ".join(f"'{one}'" for one in self.efforts)
            return self._no(f"Unsupported value: '{effort}'. Supported values are: {listed}.", "reasoning_effort")
        cap = request.json.get("max_completion_tokens", request.json.get("max_tokens"))
        if self.limit is not None and isinstance(cap, int) and cap > self.limit:
            return self._no(f"max_tokens: {cap} > {self.limit}, the maximum number of output tokens", None)
        return None

    def _no(self, words: str, field: str | None) -> Reply:
        return Reply(400, {"error": {"type": "invalid_request_error", "message": words, "param": field, "code": None}})


async def test_openai_settles_on_what_the_model_takes_and_keeps_to_it(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.rule = Picky(
        refused={
            "temperature": "openai: Unsupported value: 'temperature'",
            "max_completion_tokens": "Unrecognized request argument supplied: max_completion_tokens",
        },
        efforts=("minimal", "low"),
        limit=4096,
    )
    client = make_client("openai")
    assert (await client.complete("", "hi", 50_000)).text == "echo: hi"
    learned = len(stand_in.requests)
    assert learned == 5
    await client.complete("", "again", 50_000)
    sent = stand_in.requests[-1].json
    assert len(stand_in.requests) == learned + 1
    assert "temperature" not in sent
    assert "max_completion_tokens" not in sent
    assert (sent["reasoning_effort"], sent["max_tokens"]) == ("minimal", 4096)


async def test_anthropic_settles_on_what_the_model_takes(stand_in: ProviderStandIn, make_client: MakeClient) -> None:
    stand_in.rule = Picky(
        refused={"temperature": "temperature: not supported", "output_config": "output_config: not permitted"},
        limit=8192,
    )
    client = make_client("anthropic", effort="high")
    assert (await client.complete("", "hi", 9000)).text == "echo: hi"
    assert stand_in.requests[0].json["output_config"] == {"effort": "high"}
    last = stand_in.requests[-1].json
    assert len(stand_in.requests) == 4
    assert "temperature" not in last
    assert "output_config" not in last
    assert last["max_tokens"] == 8192


async def test_a_pinned_effort_is_the_one_that_is_sent(stand_in: ProviderStandIn, make_client: MakeClient) -> None:
    await make_client("openai", effort="high").complete("", "hi")
    assert stand_in.requests[0].json["reasoning_effort"] == "high"


async def test_streams_learn_as_other_calls_do(stand_in: ProviderStandIn, make_client: MakeClient) -> None:
    stand_in.rule = Picky(refused={"stream_options": "unknown field stream_options", "temperature": "temperature: no"})
    client = make_client("openai")
    deltas = [delta async for delta in client.chat(ChatRequest.of_prompt("", "hi"))]
    assert deltas[-1].result is not None
    assert deltas[-1].result.text == "echo: hi"
    assert len(stand_in.requests) == 3
    assert "stream_options" not in stand_in.requests[-1].json


@pytest.mark.parametrize("streamed", [False, True])
async def test_many_first_calls_at_once_are_refused_no_more_often_than_one(
    streamed: bool, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.rule = Picky(refused={"temperature": "temperature: no"}, efforts=("low",), limit=2000)
    client = make_client("openai")

    async def call(number: int) -> str:
        if not streamed:
            return (await client.complete("", f"n{number}", 3000)).text
        deltas = [delta async for delta in client.chat(ChatRequest.of_prompt("", f"n{number}", 3000))]
        return "".join(delta.text for delta in deltas)

    async with asyncio.timeout(30):
        answers = await asyncio.gather(*(call(number) for number in range(100)))
    assert answers == [f"echo: n{number}" for number in range(100)]
    assert len(stand_in.requests) == 100 + 3


async def test_a_first_call_that_hangs_holds_up_no_other(stand_in: ProviderStandIn, make_client: MakeClient) -> None:
    stand_in.script(Reply(fault=Fault.HANG))
    client = make_client("openai", learning_wait_s=0.05)
    hung = asyncio.create_task(client.complete("", "stuck"))
    async with asyncio.timeout(10):
        await stand_in.arrived.wait()
        answers = await asyncio.gather(*(client.complete("", f"n{number}") for number in range(20)))
    assert len(answers) == 20
    hung.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hung


async def test_a_first_call_that_fails_leaves_the_learning_to_the_next(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply.error(503))
    client = make_client("openai")
    with pytest.raises(ProviderError):
        await client.complete("", "hi")
    assert (await client.complete("", "hi")).text == "echo: hi"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_provider_that_refuses_whatever_is_sent_is_not_asked_for_ever(
    streamed: bool, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    numbers = iter(range(900, 0, -1))
    stand_in.rule = lambda request: Reply.error(400, f"at most {next(numbers)} output tokens")
    client = make_client("openai")
    call = anext(client.chat(ChatRequest.of_prompt("", "hi"))) if streamed else client.complete("", "hi")
    with pytest.raises(ProviderError) as caught:
        await call
    assert (type(caught.value), caught.value.kind, caught.value.status) == (ProviderError, FailureKind.STATUS, 400)
    assert len(stand_in.requests) < 20


def thought_only(provider: str, thinking: int = 64) -> Reply:
    if provider == "openai":
        details = {"reasoning_tokens": thinking}
        return Reply(body=chat_completion("", stop="length", completion_tokens_details=details))
    details = {"thinking_tokens": thinking}
    return Reply(body={**message("", stop="max_tokens", output_tokens_details=details), "content": []})


@pytest.mark.parametrize(("provider", "field"), [("openai", "max_completion_tokens"), ("anthropic", "max_tokens")])
async def test_an_answer_that_was_all_hidden_reasoning_is_asked_for_once_more_with_all_the_room(
    provider: str, field: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(thought_only(provider))
    client = make_client(provider, reserve_max=5000)
    result = await client.complete("", "hi", 64)
    assert result.text == "echo: hi"
    # Both were billed.
    assert (result.input_tokens, result.output_tokens, result.reasoning_tokens) == (22, 14, 64)
    await client.complete("", "hi", 64)
    assert [one.json[field] for one in stand_in.requests] == [64, 5064, 64 + 128]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_an_answer_that_is_empty_with_all_the_room_too_is_not_asked_for_again(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(*[thought_only(provider)] * 3)
    result = await make_client(provider).complete("", "hi", 64)
    assert (result.text, result.stop_reason) == ("", "length")
    assert len(stand_in.requests) == 2


async def test_a_stream_that_was_all_hidden_reasoning_is_asked_for_once_more(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply(events=openai_events("", stop="length", reasoning=64)))
    client = make_client("openai", reserve_max=5000)
    deltas = [delta async for delta in client.chat(ChatRequest.of_prompt("", "hi", 64))]
    result = deltas[-1].result
    assert result is not None
    assert (result.text, result.input_tokens, result.output_tokens) == ("echo: hi", 22, 14)
    assert [one.json["max_completion_tokens"] for one in stand_in.requests] == [64, 5064]


async def test_a_short_answer_that_can_be_seen_is_left_as_it_is(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply(body=chat_completion("half a", stop="length")))
    result = await make_client("openai").complete("", "hi", 2)
    assert (result.text, result.stop_reason) == ("half a", "length")
    assert len(stand_in.requests) == 1


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_what_hidden_reasoning_cost_is_told_where_the_second_request_fails(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(thought_only(provider), Reply.error(503))
    client = make_client(provider, reserve_max=5000)
    completion = Completion(models_of(client), orphans_of(FakeLedgerSink()), Gate(reads_llm_free=False))
    with bind(Call(attribution=Attribution("acme"))) as call, pytest.raises(ProviderFailed):
        await completion.complete(Prompt("", "hi", 64))
    assert (call.usage.input_tokens, call.usage.output_tokens, call.usage.llm_calls) == (11, 7, 1)


async def test_what_hidden_reasoning_cost_is_recorded_where_the_caller_left_before_the_second_request_failed(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(thought_only("openai"), Reply(fault=Fault.HANG))
    client, sink = make_client("openai", reserve_max=5000, timeout_s=0.2), FakeLedgerSink()
    async with orphans_of(sink) as orphans:
        completion = Completion(models_of(client), orphans, Gate(reads_llm_free=False))
        with bind(Call(op="llm.complete", request_id="req-1", attribution=Attribution("acme", "home"))) as call:
            task = asyncio.create_task(completion.complete(Prompt("", "hi", 64)))
        async with asyncio.timeout(5):
            while len(stand_in.requests) < 2:
                stand_in.arrived.clear()
                await stand_in.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    [entry] = sink.entries
    assert (entry.row.input_tokens, entry.row.output_tokens, entry.row.status) == (11, 7, "CANCELLED")
    assert not call.usage


@pytest.mark.parametrize("ending", ["refused", "broken off", "left"])
async def test_what_a_streams_hidden_reasoning_cost_is_told_however_the_second_stream_ends(
    ending: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    replies = {
        "refused": Reply.error(503),
        "broken off": Reply(events=openai_events("one two")[:3], fault=Fault.CUT),
        "left": Reply(events=openai_events("one two")[:3], fault=Fault.STALL),
    }
    stand_in.script(Reply(events=openai_events("", stop="length", reasoning=64)), replies[ending])
    client, sink = make_client("openai", reserve_max=5000), FakeLedgerSink()
    chat = Chat(models_of(client), orphans_of(sink), Gate(reads_llm_free=False))
    with bind(Call(op="llm.chat", attribution=Attribution("acme", "home"))) as call:
        stream = chat.stream(ChatRequest.of_prompt("", "hi", 64))
        if ending == "left":
            await anext(stream)
            await stream.aclose()
        else:
            with pytest.raises(ProviderFailed):
                async for _ in stream:
                    pass
    if ending == "left":
        [entry] = sink.entries
        told = (entry.row.output_tokens, entry.row.llm_call_count)
    else:
        told = (call.usage.output_tokens, call.usage.llm_calls)
    assert told[0] >= 7
    assert told[1] == (1 if ending == "refused" else 2)


@pytest.mark.parametrize("way", ["whole", "stream"])
async def test_what_hidden_reasoning_cost_is_told_once_where_all_went_well(
    way: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(thought_only("openai") if way == "whole" else Reply(events=openai_events("", stop="length")))
    client, sink = make_client("openai", reserve_max=5000), FakeLedgerSink()
    models, orphans, gate = models_of(client), orphans_of(sink), Gate(reads_llm_free=False)
    with bind(Call(attribution=Attribution("acme"))) as call:
        if way == "whole":
            await Completion(models, orphans, gate).complete(Prompt("", "hi", 64))
        else:
            async for _ in Chat(models, orphans, gate).stream(ChatRequest.of_prompt("", "hi", 64)):
                pass
    assert (call.usage.input_tokens, call.usage.output_tokens) == (22, 14)
    assert sink.entries == []
