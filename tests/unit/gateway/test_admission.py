"""Places for calls, and the line before them."""

import asyncio
from dataclasses import replace

import pytest

from loom_common.errors import Overloaded
from loom_common.ops import OpSpec, all_ops
from loom_gateway.calls.admission import Admission, AdmissionLimits, Room

GET: OpSpec = all_ops()["memory.get"]
LIMITS = AdmissionLimits(max_calls=1, max_waiting=1, wait_s=5, max_streams=1)


async def waiting(room: Room) -> "asyncio.Task[None]":
    task = asyncio.create_task(room.enter())
    await asyncio.sleep(0)
    return task


async def test_a_call_beyond_the_places_waits_and_gets_the_next_that_is_free() -> None:
    room = Admission(LIMITS).room(GET)
    await room.enter()
    second = await waiting(room)
    assert not second.done()
    room.leave()
    await second


async def test_a_call_beyond_the_line_is_refused_at_once_and_told_when_to_come_back() -> None:
    room = Admission(LIMITS).room(GET)
    await room.enter()
    second = await waiting(room)
    with pytest.raises(Overloaded) as caught:
        await room.enter()
    assert caught.value.retry_after_s == 1.0
    room.leave()
    await second


async def test_a_call_that_waits_too_long_is_refused_and_leaves_the_line() -> None:
    room = Admission(replace(LIMITS, wait_s=0.01)).room(GET)
    await room.enter()
    with pytest.raises(Overloaded):
        await room.enter()
    room.leave()
    await room.enter()


async def test_a_call_waits_no_longer_than_its_caller_does() -> None:
    room = Admission(replace(LIMITS, wait_s=600)).room(GET)
    await room.enter()
    with pytest.raises(Overloaded):
        await asyncio.wait_for(room.enter(0.01), 10)
    room.leave()
    await room.enter()


async def test_a_caller_that_leaves_the_line_takes_no_place_with_it() -> None:
    room = Admission(replace(LIMITS, max_waiting=2)).room(GET)
    await room.enter()
    gone, next_ = await waiting(room), await waiting(room)
    gone.cancel()
    room.leave()
    await next_
    # Cancelled in the very moment in which its place came.
    late = await waiting(room)
    room.leave()
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    await asyncio.wait_for(room.enter(), 1)


async def test_a_service_or_class_that_is_full_leaves_the_others_their_places() -> None:
    admission = Admission(LIMITS)
    await admission.room(GET).enter()
    for other in (replace(GET, owner="insights"), replace(GET, rate_class="search")):
        await asyncio.wait_for(admission.room(other).enter(), 1)


async def test_streams_have_places_of_their_own_and_wait_for_none() -> None:
    admission = Admission(LIMITS)
    stream = replace(GET, response_streaming=True)
    await admission.room(GET).enter()
    await admission.room(stream).enter()
    with pytest.raises(Overloaded):
        await admission.room(stream).enter()
