import asyncio
import time

from loom_common.call import Call, Scope, bind, current, current_or_none


def test_the_bound_call_is_the_running_one_until_its_block_ends():
    assert current_or_none() is None
    outer, inner = Call(op="a"), Call(op="b")
    with bind(outer):
        with bind(inner):
            assert current() is inner
        assert current() is outer
    assert current_or_none() is None


def test_outside_of_any_call_what_is_spent_is_seen_by_nobody():
    current().usage.llm_calls += 1
    assert current().usage.llm_calls == 0


async def test_tasks_share_the_call_that_started_them_and_no_other():
    seen = {}

    async def work(name):
        with bind(Call(op=name)):
            await asyncio.gather(spend(), spend())
            seen[name] = current().usage.llm_calls

    async def spend():
        await asyncio.sleep(0)
        current().usage.llm_calls += 1

    await asyncio.gather(work("a"), work("b"))
    assert seen == {"a": 2, "b": 2}


async def test_an_abandoned_stream_may_be_closed_by_another_task():
    async def stream():
        with bind(Call(op="a")):
            yield 1
            yield 2

    held = stream()
    await anext(held)
    await asyncio.create_task(held.aclose())


def test_a_statement_is_marked_with_operation_and_request():
    assert Call(op="memory.get", request_id="01J").statement_tag == "memory.get 01J"
    assert Call().statement_tag == "system -"


def test_time_left_is_bounded_below_and_absent_without_deadline():
    assert Call().time_left_s() is None
    assert Call(deadline=time.monotonic() - 5).time_left_s() == 0.0
    assert 0 < Call(deadline=time.monotonic() + 50).time_left_s() <= 50


def test_the_callers_token_is_in_no_representation():
    assert "secret-token" not in repr(Call(token="secret-token", scope=Scope("o", "n")))
