"""Streams of the llm service on a real server: pieces, tools, failures, callers that leave, many at once."""

import asyncio
import threading
from collections.abc import AsyncGenerator

import grpc.aio
import pytest
from support.grpc import Deployment, bad_request, error_info, reason_of
from support.llm import ScriptedClient, models_of, orphans_of, without_endpoints
from support.llm_service import FOR_ACME, Rig
from support.provider_streams import Asked, anthropic_events, openai_events
from support.providers import TEST_KEY, Fault, Reply

from loom.llm.v1 import llm_pb2 as pb
from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_common.attribution import ATTRIBUTION_KEY
from loom_common.call import Call, bind
from loom_common.clock import SystemClock
from loom_common.ledger import FakeLedgerSink
from loom_common.server import Service
from loom_llm.api.llm import LlmServicer
from loom_llm.app.cache import AnswerCache
from loom_llm.app.chat import Chat
from loom_llm.app.completion import Completion
from loom_llm.app.gate import Gate
from loom_llm.domain.messages import ChatRequest, Delta
from loom_llm.domain.policy import TrafficPolicies
from loom_llm.domain.selection import Selection, Source
from loom_llm.store.answers_fake import FakeAnswers
from loom_llm.wiring import open_service

OPENAI = {"OPENAI_API_KEY": TEST_KEY}
BOTH = {"OPENAI_API_KEY": TEST_KEY, "ANTHROPIC_API_KEY": TEST_KEY}
WEATHER = pb.Tool(name="weather", description="Tells the weather.", parameters='{"type": "object"}')
CALLS = (Asked("c1", "weather", '{"town": "Bonn"}'), Asked("c2", "weather", '{"town": "Trier"}'))


def tasks_of_a_stream() -> list[str]:
    """Returns the running tasks that are the service's or an SDK's own."""
    running = [str(task.get_coro()) for task in asyncio.all_tasks()]
    return [coro for coro in running if any(name in coro for name in ("loom_llm", "openai", "httpx2", "httpcore"))]


def conversation(**more: object) -> pb.ChatRequest:
    asked = [pb.ChatMessage(role="user", text="hi")]
    return pb.ChatRequest(messages=asked, tools=[WEATHER], **more)  # type: ignore[arg-type]  # any field


def after_calls(asked: list[str], *told: str, text: str = "", late: str = "") -> pb.ChatRequest:
    """Returns a conversation after calls to tools, with these results, and perhaps with one that comes too late."""
    calls = [pb.ToolCall(id=name, name="weather", arguments="{}") for name in asked]
    turns = [*conversation().messages, pb.ChatMessage(role="assistant", tool_calls=calls)]
    turns += [pb.ChatMessage(role="tool", text="rain", tool_call_id=name) for name in told]
    if text:
        turns.append(pb.ChatMessage(role="user", text=text))
    if late:
        turns.append(pb.ChatMessage(role="tool", text="sun", tool_call_id=late))
    return pb.ChatRequest(messages=turns, tools=[WEATHER])


UNSENDABLE = [
    pb.Tool(name="x", parameters=text)
    for text in ('{"default": NaN}', '{"a":' * 65 + "1" + "}" * 65, '{"a":' * 20_000, '"{}"', "{} {}", "{'a': 1}")
]


@pytest.mark.parametrize("model", ["gpt-6-luna", "claude-haiku-4-5"])
async def test_a_conversation_with_tools_comes_in_pieces_and_ends_with_what_it_cost(rig: Rig, model: str) -> None:
    events = openai_events if model.startswith("gpt") else anthropic_events
    rig.stand_in.script(Reply(events=events("I look.", CALLS)), Reply(events=events("Rain.")))
    async with (
        open_service(rig.settings(**BOTH), rig.clickhouse) as server,
        rig.deployment.channel(server.address, "memory") as channel,
    ):
        stub = pb_grpc.LlmServiceStub(channel)
        with bind(Call(attribution=FOR_ACME)) as call:
            first = [piece async for piece in stub.Chat(conversation(model=model))]
            arguments: dict[int, str] = {}
            for piece in first:
                for part in piece.tool_calls:
                    arguments[part.index] = arguments.get(part.index, "") + part.arguments
            calls = [pb.ToolCall(id=one.id, name=one.name, arguments=one.arguments) for one in CALLS]
            results = [pb.ChatMessage(role="tool", text="rain", tool_call_id=one.id) for one in CALLS]
            turns = [
                pb.ChatMessage(role="user", text="hi"),
                pb.ChatMessage(role="assistant", text="I look.", tool_calls=calls),
                *results,
            ]
            second = [piece async for piece in stub.Chat(pb.ChatRequest(messages=turns, tools=[WEATHER], model=model))]
    assert "".join(piece.text for piece in first) == "I look."
    assert list(arguments.values()) == [one.arguments for one in CALLS]
    assert [piece.HasField("end") for piece in first] == [False] * (len(first) - 1) + [True]
    assert (first[-1].end.stop_reason, first[-1].end.model) == ("tool_calls", model)
    assert "".join(piece.text for piece in second) == "Rain."
    assert (call.usage.input_tokens, call.usage.output_tokens, call.usage.llm_calls) == (22, 14, 2)


async def test_a_prompt_is_streamed(rig: Rig) -> None:
    async with (
        open_service(rig.settings(**OPENAI), rig.clickhouse) as server,
        rig.deployment.channel(server.address, "memory") as channel,
    ):
        with bind(Call(attribution=FOR_ACME)):
            call = pb_grpc.LlmServiceStub(channel).StreamComplete(pb.StreamCompleteRequest(user="hi"))
            pieces = [piece async for piece in call]
    assert [piece.text for piece in pieces] == ["echo:", " hi", ""]
    assert (pieces[-1].end.stop_reason, pieces[-1].end.input_tokens) == ("stop", 11)


async def test_a_stream_that_breaks_off_ends_as_a_failure_of_the_provider(rig: Rig) -> None:
    rig.stand_in.script(Reply(events=openai_events("one two")[:2], fault=Fault.CUT))
    async with (
        open_service(rig.settings(**OPENAI), rig.clickhouse) as server,
        grpc.aio.insecure_channel(server.address) as raw,
    ):
        call = pb_grpc.LlmServiceStub(raw).StreamComplete(pb.StreamCompleteRequest(user="hi"), metadata=rig.metadata())
        assert (await call.read()).text == "one"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    info = error_info(caught.value)
    assert (info.reason, info.metadata["kind"]) == ("PROVIDER_FAILED", "connection")


async def test_a_model_that_is_out_is_replaced_by_the_fallback_which_the_answer_names(rig: Rig) -> None:
    rig.stand_in.rule = lambda request: Reply.error(503) if request.json.get("model") == "gpt-6-luna" else None
    settings = rig.settings(**BOTH, LOOM_LLM_FALLBACK_MODEL="claude-haiku-4-5", LOOM_LLM_RETRY_ATTEMPTS=2)
    async with (
        open_service(settings, rig.clickhouse) as server,
        rig.deployment.channel(server.address, "memory") as channel,
    ):
        stub = pb_grpc.LlmServiceStub(channel)
        with bind(Call(attribution=FOR_ACME)):
            whole = await stub.Complete(pb.CompleteRequest(user="hi"))
            pieces = [piece async for piece in stub.Chat(conversation())]
    assert (whole.provider, whole.model, whole.stop_reason) == ("anthropic", "claude-haiku-4-5", "stop")
    assert (pieces[-1].end.provider, pieces[-1].end.model) == ("anthropic", "claude-haiku-4-5")


async def test_a_caller_that_leaves_ends_the_providers_stream(rig: Rig) -> None:
    rig.stand_in.script(Reply(events=openai_events("one two")[:2], fault=Fault.STALL))
    async with (
        open_service(rig.settings(**OPENAI), rig.clickhouse) as server,
        grpc.aio.insecure_channel(server.address) as raw,
    ):
        call = pb_grpc.LlmServiceStub(raw).Chat(conversation(), metadata=rig.metadata())
        assert (await call.read()).text == "one"
        assert rig.stand_in.open_streams == 1
        call.cancel()
        async with asyncio.timeout(20):
            await rig.stand_in.stream_ended.wait()
            while tasks_of_a_stream():  # noqa: ASYNC110 - nothing tells that a task is gone
                await asyncio.sleep(0.01)
        assert rig.stand_in.open_streams == 0


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.ChatRequest(), "messages"),
        (pb.ChatRequest(messages=[pb.ChatMessage(role="system", text="x")]), "messages[0].role"),
        (pb.ChatRequest(messages=[pb.ChatMessage(role="user")]), "messages[0].text"),
        (conversation(tool_choice=pb.ToolChoice(mode="tool", name="clock")), "tool_choice.name"),
        (
            pb.ChatRequest(messages=conversation().messages, tools=[pb.Tool(name="x", parameters="[]")]),
            "tools[0].parameters",
        ),
        (
            pb.ChatRequest(
                messages=[*conversation().messages, pb.ChatMessage(role="tool", text="x", tool_call_id="c9")]
            ),
            "messages[1].tool_call_id",
        ),
        (
            pb.ChatRequest(messages=[*conversation().messages, pb.ChatMessage(role="assistant", text="x")]),
            "messages[1].role",
        ),
        (after_calls(["c1", "c1"], "c1"), "messages[1].tool_calls"),
        (after_calls(["c1", "c2"], "c1"), "messages[2]"),
        (after_calls(["c1"], "c1", "c1"), "messages[3].tool_call_id"),
        (after_calls(["c1", "c2"], "c1", text="and?"), "messages[3].role"),
        (after_calls(["c1"], "c1", text="and?", late="c1"), "messages[4].tool_call_id"),
        *(
            (pb.ChatRequest(messages=conversation().messages, tools=[tool]), "tools[0].parameters")
            for tool in UNSENDABLE
        ),
    ],
)
async def test_a_conversation_that_no_model_could_continue_is_refused(
    fake_server: grpc.aio.Channel, rig: Rig, request_: pb.ChatRequest, field: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await pb_grpc.LlmServiceStub(fake_server).Chat(request_, metadata=rig.metadata()).read()
    assert reason_of(caught.value) == "INVALID_ARGUMENT"
    assert field in [violation.field for violation in bad_request(caught.value).field_violations]


async def test_two_hundred_streams_at_once_take_no_thread_each(rig: Rig) -> None:
    rig.stand_in.rule = lambda request: Reply(events=openai_events("one two")[:2], fault=Fault.STALL)
    async with (
        open_service(rig.settings(**OPENAI), rig.clickhouse) as server,
        grpc.aio.insecure_channel(server.address) as raw,
    ):
        stub = pb_grpc.LlmServiceStub(raw)
        first = stub.Chat(conversation(), metadata=rig.metadata())
        assert (await first.read()).text == "one"
        threads = threading.active_count()
        calls = [stub.Chat(conversation(), metadata=rig.metadata()) for _ in range(200)]
        async with asyncio.timeout(60):
            pieces = await asyncio.gather(*(call.read() for call in calls))
            assert {piece.text for piece in pieces} == {"one"}
            assert rig.stand_in.open_streams == 201
            assert threading.active_count() <= threads + 8
            # None of them waits for another: a call beside them is answered.
            rig.stand_in.rule = lambda request: None
            answer = await stub.Complete(pb.CompleteRequest(user="hi"), metadata=rig.metadata())
            assert answer.text == "echo: hi"
            for call in (first, *calls):
                call.cancel()
            while rig.stand_in.open_streams:
                rig.stand_in.stream_ended.clear()
                await rig.stand_in.stream_ended.wait()


async def read_on(call: "grpc.aio.UnaryStreamCall[pb.ChatRequest, pb.ChatResponse]") -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


class EndlessModel(ScriptedClient):
    """Streams words for as long as somebody takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """See `LLMClient.chat`."""
        try:
            while True:
                yield Delta("word " * 1000, input_tokens=11)
                await asyncio.sleep(0)
        finally:
            self.ended.set()


async def test_a_caller_that_stops_reading_loses_its_stream_and_what_it_spent_is_recorded(
    deployment: Deployment,
) -> None:
    model, sink = EndlessModel(), FakeLedgerSink()
    models, orphans, gate = models_of(model), orphans_of(sink), Gate(reads_llm_free=False)
    cache = AnswerCache(FakeAnswers(), TrafficPolicies(), SystemClock())
    served = Selection("openai", model.model, Source.KEY, "openai")
    servicer = LlmServicer(
        Completion(models, orphans, gate),
        Chat(models, orphans, gate),
        *without_endpoints(models, orphans, gate),
        cache,
        served,
        longest_write_s=0.2,
    )
    service = Service(pb_grpc.add_LlmServiceServicer_to_server, servicer, "loom.llm.v1.LlmService")
    metadata = (deployment.credential("memory"), (ATTRIBUTION_KEY, FOR_ACME.to_bytes()))
    async with (
        deployment.serving(service, name="llm") as server,
        grpc.aio.insecure_channel(server.address) as raw,
        asyncio.timeout(30),
    ):
        call = pb_grpc.LlmServiceStub(raw).Chat(conversation(), metadata=metadata)
        assert (await call.read()).text.startswith("word")
        await model.ended.wait()
        # What was sent before is still read, and then why the rest is missing.
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read_on(call)
    assert reason_of(caught.value) == "DEADLINE_EXCEEDED"
    [entry] = sink.entries
    assert (entry.row.org, entry.row.input_tokens) == ("acme", 11)
    assert entry.row.output_tokens > 0
