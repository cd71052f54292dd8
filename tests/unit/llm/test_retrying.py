"""One retry policy: what is tried again, how long is waited, when it ends."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.llm import ScriptedClient
from support.provider_streams import openai_error_event, openai_events
from support.providers import TEST_KEY, Fault, ProviderStandIn, Reply

from loom_common.call import Call, bind
from loom_common.providers import FailureKind, ProviderError, RetryPolicy
from loom_llm.domain.messages import ChatRequest
from loom_llm.domain.opening import opened, until
from loom_llm.domain.traits import Traits
from loom_llm.providers.openai import OpenAIWire
from loom_llm.providers.retrying import RetryingClient, retry_policy
from loom_llm.providers.sdk import Endpoint
from loom_llm.providers.shaped import ShapedClient

POLICY = retry_policy(attempts=4, max_wait_s=20.0, total_s=60.0)


class Waits:
    """Notes waits instead of waiting."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@asynccontextmanager
async def retrying(
    stand_in: ProviderStandIn, waits: Waits, policy: RetryPolicy = POLICY, *, timeout_s: float = 5.0
) -> AsyncIterator[RetryingClient]:
    wire = OpenAIWire(Endpoint(TEST_KEY, stand_in.openai_url, timeout_s))
    # No call waits for another's lesson: what is tested here is what happens when calls fail.
    traits = Traits("gpt-6-luna", wire.wished(), reserve_max=0, learning_wait_s=0.0)
    yield RetryingClient(ShapedClient(wire, "gpt-6-luna", traits), policy, sleep=waits)
    await wire.aclose()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 529])
async def test_a_retryable_status_is_tried_again_and_answers(status: int, stand_in: ProviderStandIn) -> None:
    stand_in.script(Reply.error(status))
    waits = Waits()
    async with retrying(stand_in, waits) as client:
        assert (await client.complete("", "hi")).text == "echo: hi"
    assert len(stand_in.requests) == 2
    assert waits.seconds == [0.5]


@pytest.mark.parametrize(("fault", "timeout_s"), [(Fault.RESET, 30), (Fault.HALF_BODY, 30), (Fault.HANG, 1)])
async def test_a_broken_transport_is_tried_again(fault: Fault, timeout_s: float, stand_in: ProviderStandIn) -> None:
    stand_in.script(Reply(body={"half": "of it"}, fault=fault))
    async with retrying(stand_in, Waits(), timeout_s=timeout_s) as client:
        assert (await client.complete("", "hi")).text == "echo: hi"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 422])
async def test_any_other_status_is_not_tried_again(status: int, stand_in: ProviderStandIn) -> None:
    stand_in.script(Reply.error(status))
    async with retrying(stand_in, Waits()) as client:
        with pytest.raises(ProviderError) as caught:
            await client.complete("", "hi")
    assert (caught.value.status, caught.value.attempts) == (status, 1)
    assert len(stand_in.requests) == 1


async def test_a_malformed_answer_is_not_tried_again(stand_in: ProviderStandIn) -> None:
    stand_in.script(Reply(body="{half"))
    async with retrying(stand_in, Waits()) as client:
        with pytest.raises(ProviderError):
            await client.complete("", "hi")
    assert len(stand_in.requests) == 1


async def test_the_waits_double_up_to_their_cap_and_the_attempts_end(stand_in: ProviderStandIn) -> None:
    stand_in.script(*[Reply.error(503)] * 9)
    waits = Waits()
    async with retrying(stand_in, waits, retry_policy(attempts=6, max_wait_s=3.0, total_s=60)) as client:
        with pytest.raises(ProviderError) as caught:
            await client.complete("", "hi")
    assert waits.seconds == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert caught.value.attempts == len(stand_in.requests) == 6


@pytest.mark.parametrize(
    ("headers", "waited_s"),
    [({"retry_after": "7"}, 7.0), ({"retry_after_ms": "1500"}, 1.5), ({"retry_after": "0.1"}, 0.5), ({}, 0.5)],
)
async def test_a_wait_that_the_provider_asks_for_is_kept(
    headers: dict[str, str], waited_s: float, stand_in: ProviderStandIn
) -> None:
    stand_in.script(Reply.error(429, **headers))
    waits = Waits()
    async with retrying(stand_in, waits) as client:
        await client.complete("", "hi")
    assert waits.seconds == [waited_s]


async def test_a_wait_longer_than_the_cap_ends_the_attempts_and_is_told(stand_in: ProviderStandIn) -> None:
    stand_in.script(Reply.error(429, retry_after="120"))
    async with retrying(stand_in, Waits()) as client:
        with pytest.raises(ProviderError) as caught:
            await client.complete("", "hi")
    assert caught.value.retry_after_s == 120.0
    assert len(stand_in.requests) == 1


async def test_a_wait_that_the_caller_does_not_outlast_is_not_begun(stand_in: ProviderStandIn) -> None:
    stand_in.script(*[Reply.error(503)] * 9)
    waits = Waits()
    with bind(Call(deadline=time.monotonic() + 0.4)):
        async with retrying(stand_in, waits) as client:
            with pytest.raises(ProviderError):
                await client.complete("", "hi")
    assert waits.seconds == []


async def test_all_attempts_together_end_at_the_total_deadline(stand_in: ProviderStandIn) -> None:
    stand_in.script(Reply(fault=Fault.HANG))
    async with retrying(stand_in, Waits(), retry_policy(attempts=4, max_wait_s=1, total_s=0.2)) as client:
        with pytest.raises(ProviderError) as caught:
            await client.complete("", "hi")
    assert caught.value.kind is FailureKind.TIMEOUT


async def test_a_cancelled_call_is_cancelled_and_no_failure(stand_in: ProviderStandIn) -> None:
    stand_in.script(Reply(fault=Fault.HANG))
    async with retrying(stand_in, Waits()) as client:
        task = asyncio.create_task(client.complete("", "hi"))
        await asyncio.wait_for(stand_in.arrived.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_one_hung_call_holds_up_no_other(stand_in: ProviderStandIn) -> None:
    stand_in.script(Reply(fault=Fault.HANG))
    async with retrying(stand_in, Waits()) as client:
        hung = asyncio.create_task(client.complete("", "stuck"))
        await asyncio.wait_for(stand_in.arrived.wait(), 5)
        answers = await asyncio.wait_for(asyncio.gather(*(client.complete("", f"n{n}") for n in range(20))), 10)
        assert [answer.text for answer in answers] == [f"echo: n{n}" for n in range(20)]
        hung.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hung


ASKED = ChatRequest.of_prompt("", "hi")


async def seen_and_failure(client: RetryingClient) -> tuple[list[str], ProviderError]:
    """Reads a stream that fails; returns what was seen before, and the failure."""
    seen: list[str] = []

    async def listen() -> None:
        async for delta in client.chat(ASKED):
            seen.extend([delta.text] if delta.text else [])

    with pytest.raises(ProviderError) as caught:
        await listen()
    return seen, caught.value


@pytest.mark.parametrize(
    "reply",
    [
        Reply.error(503),
        Reply.error(429),
        Reply(fault=Fault.RESET),
        Reply(events=openai_events("one")[:1], fault=Fault.CUT),
        Reply(events=[openai_error_event("server_error")]),
    ],
)
async def test_a_stream_is_tried_again_until_something_was_seen(reply: Reply, stand_in: ProviderStandIn) -> None:
    stand_in.script(reply)
    waits = Waits()
    async with retrying(stand_in, waits) as client:
        deltas = [delta async for delta in client.chat(ASKED)]
    assert "".join(delta.text for delta in deltas) == "echo: hi"
    assert waits.seconds == [0.5]


@pytest.mark.parametrize(("fault", "timeout_s"), [(Fault.CUT, 30), (Fault.STALL, 1)])
async def test_a_stream_of_which_something_was_seen_is_not_tried_again(
    fault: Fault, timeout_s: float, stand_in: ProviderStandIn
) -> None:
    stand_in.script(Reply.error(503), Reply(events=openai_events("one two")[:2], fault=fault))
    async with retrying(stand_in, Waits(), timeout_s=timeout_s) as client:
        seen, error = await seen_and_failure(client)
    assert seen == ["one"]
    assert error.attempts == 2
    assert len(stand_in.requests) == 2


async def test_a_provider_that_streams_for_ever_is_cut_at_the_total_deadline(stand_in: ProviderStandIn) -> None:
    stand_in.script(Reply(events=openai_events("one two")[:2], fault=Fault.ENDLESS))
    async with retrying(stand_in, Waits(), retry_policy(attempts=4, max_wait_s=1, total_s=0.3)) as client:
        async with asyncio.timeout(10):
            seen, error = await seen_and_failure(client)
            await stand_in.stream_ended.wait()
    assert len(seen) > 1
    assert error.kind is FailureKind.TIMEOUT
    assert stand_in.open_streams == 0


async def test_a_provider_that_sends_nothing_visible_for_ever_is_cut_too(stand_in: ProviderStandIn) -> None:
    stand_in.script(Reply(events=[": keep-alive\n\n"], fault=Fault.ENDLESS))
    async with retrying(stand_in, Waits(), retry_policy(attempts=4, max_wait_s=1, total_s=0.3)) as client:
        async with asyncio.timeout(10):
            seen, error = await seen_and_failure(client)
    assert (seen, error.kind) == ([], FailureKind.TIMEOUT)


async def test_what_a_reader_does_between_two_pieces_is_not_cut(stand_in: ProviderStandIn) -> None:
    async with retrying(stand_in, Waits(), retry_policy(attempts=1, max_wait_s=1, total_s=0.2)) as client:
        deltas = client.chat(ASKED)
        first = await anext(deltas)
        # The stream's time passes while the reader is busy: it ends the stream and never the reader.
        waited = asyncio.Event()
        asyncio.get_running_loop().call_later(0.3, waited.set)
        async with asyncio.timeout(5):
            await waited.wait()
        with pytest.raises(ProviderError) as caught:
            await anext(deltas)
    assert first.text == "echo:"
    assert caught.value.kind is FailureKind.TIMEOUT


async def test_a_stream_that_was_opened_too_late_is_closed_all_the_same() -> None:
    client = ScriptedClient()
    stream = await opened(client.chat(ASKED))
    with pytest.raises(ProviderError):
        async for _ in until(stream.deltas(), time.monotonic() - 1, "openai"):
            pass
    assert client.open_streams == 0
