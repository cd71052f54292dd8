"""Streams of answers: the gate, what they cost however they end, and that a caller who leaves ends the model's work."""

import asyncio
import time
from contextlib import aclosing

import pytest
from support.llm import ScriptedClient, failure, models_of, orphans_of

from loom_common.attribution import Attribution
from loom_common.call import Call, bind
from loom_common.errors import ModelCallUnattributed, ProviderFailed, ReadsLlmFree
from loom_common.ledger import FakeLedgerSink
from loom_llm.app.chat import Chat
from loom_llm.app.gate import Gate
from loom_llm.app.watching import Healths
from loom_llm.domain.messages import ChatRequest, Delta, LLMResult, Message

FOR_ACME = Attribution(org="acme", namespace="team", feature="assistant.ask")
READ = Attribution(org="acme", feature="memory.search", read_only=True)
ASKED = ChatRequest((Message("user", "x" * 40),))
ANSWER = LLMResult("one two", "openai", "gpt-6-luna", input_tokens=11, output_tokens=7)


class Rig:
    """The use case with its ledger and its health."""

    def __init__(self, client: ScriptedClient, *, reads_llm_free: bool = False) -> None:
        self.sink, self.healths = FakeLedgerSink(), Healths()
        self.orphans = orphans_of(self.sink)
        gate = Gate(reads_llm_free=reads_llm_free)
        self.chat = Chat(models_of(client, self.healths), self.orphans, gate)

    async def read(self) -> list[Delta]:
        return [delta async for delta in self.chat.stream(ASKED)]


async def test_what_a_stream_spent_lands_on_the_running_call() -> None:
    rig = Rig(ScriptedClient(ANSWER))
    with bind(Call(attribution=FOR_ACME)) as call:
        deltas = await rig.read()
    assert "".join(delta.text for delta in deltas) == "one two"
    assert (call.usage.input_tokens, call.usage.output_tokens, call.usage.llm_calls) == (11, 7, 1)
    assert rig.sink.entries == []


async def test_what_a_provider_does_not_count_is_estimated() -> None:
    rig = Rig(ScriptedClient(LLMResult("one two", "openai", "gpt-6-luna")))
    with bind(Call(attribution=FOR_ACME)) as call:
        await rig.read()
    assert (call.usage.input_tokens, call.usage.output_tokens, call.usage.llm_calls) == (10, 2, 1)


async def test_the_gate_comes_before_the_model() -> None:
    client = ScriptedClient(ANSWER)
    with bind(Call()), pytest.raises(ModelCallUnattributed):
        await Rig(client).read()
    with bind(Call(attribution=READ)), pytest.raises(ReadsLlmFree):
        await Rig(client, reads_llm_free=True).read()
    assert client.calls == 0


async def test_a_stream_that_fails_tells_how_and_health_shows_it() -> None:
    rig = Rig(ScriptedClient(failure(503), ANSWER))
    with bind(Call(attribution=FOR_ACME)) as call:
        with pytest.raises(ProviderFailed) as caught:
            await rig.read()
        assert caught.value.detail["status"] == 503
        assert [problem.code for problem in rig.healths.problems()] == ["provider_failing:openai"]
        assert not call.usage
        await rig.read()
    assert rig.healths.problems() == []


async def test_what_was_read_of_a_stream_that_broke_off_is_estimated() -> None:
    rig = Rig(ScriptedClient([ANSWER, failure(529)]))
    with bind(Call(attribution=FOR_ACME)) as call, pytest.raises(ProviderFailed):
        await rig.read()
    assert (call.usage.input_tokens, call.usage.output_tokens, call.usage.llm_calls) == (10, 2, 1)


@pytest.mark.parametrize(("left_s", "status"), [(60.0, "CANCELLED"), (0.0, "DEADLINE_EXCEEDED")])
async def test_a_caller_that_is_cancelled_ends_the_stream_and_what_it_spent_is_recorded(
    left_s: float, status: str
) -> None:
    client = ScriptedClient()
    rig = Rig(client)
    with bind(Call(op="llm.chat", request_id="req-1", attribution=FOR_ACME, deadline=time.monotonic() + left_s)):
        task = asyncio.create_task(rig.read())
    async with asyncio.timeout(5):
        await client.begun.wait()
    assert client.open_streams == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.open_streams == 0
    (entry,) = rig.sink.entries
    row = entry.row
    assert (row.request_id, row.op, row.status, row.org) == ("req-1", "llm.chat", status, "acme")
    assert (row.input_tokens, row.output_tokens, row.llm_call_count) == (10, 1, 1)
    assert rig.healths.problems() == []


async def test_a_reader_that_stops_reading_ends_the_stream_and_what_it_spent_is_recorded() -> None:
    client = ScriptedClient()
    rig = Rig(client)
    with bind(Call(op="llm.stream_complete", request_id="req-1", attribution=FOR_ACME)) as call:
        async with aclosing(rig.chat.stream(ASKED)) as deltas:
            assert (await anext(deltas)).text == "one"
    assert client.open_streams == 0
    assert [entry.row.op for entry in rig.sink.entries] == ["llm.stream_complete"]
    assert not call.usage


async def test_a_caller_that_leaves_at_the_very_end_is_recorded_with_what_the_provider_told() -> None:
    rig = Rig(ScriptedClient(ANSWER))
    with bind(Call(op="llm.chat", attribution=FOR_ACME)):
        async with aclosing(rig.chat.stream(ASKED)) as deltas:
            async for delta in deltas:
                if delta.result is not None:
                    break
    (entry,) = rig.sink.entries
    assert (entry.row.input_tokens, entry.row.output_tokens) == (11, 7)
