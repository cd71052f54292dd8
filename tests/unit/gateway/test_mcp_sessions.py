"""What a replica remembers of sessions."""

import asyncio

import pytest

from loom_gateway.mcp.sessions import Sessions


def test_a_session_is_known_again_by_its_token_and_its_label() -> None:
    sessions = Sessions()
    sessions.of("token", "label").rule_told = True
    assert sessions.of("token", "label").rule_told
    assert not sessions.of("other", "label").rule_told
    assert not sessions.of("token", "another").rule_told


@pytest.mark.parametrize("label", ["", " ", "a b", "a\n", "é", "x" * 257])
def test_a_label_that_the_protocol_does_not_allow_is_no_session(label: str) -> None:
    sessions = Sessions()
    sessions.of("token", label).rule_told = True
    assert sessions.of("token", label).label == ""
    assert not sessions.of("token", label).rule_told


def test_the_oldest_session_is_forgotten_first() -> None:
    sessions = Sessions(most=2)
    for label in ("a", "b", "a", "c"):
        sessions.of("token", label).rule_told = True
    assert sessions.of("token", "a").rule_told
    assert not sessions.of("token", "b").rule_told


async def test_a_call_is_cancelled_by_its_own_session_alone() -> None:
    sessions = Sessions()
    session = sessions.of("token", "label")
    task = asyncio.create_task(asyncio.Event().wait())
    with session.running(7, task):
        assert not sessions.of("token", "another").cancel(7)
        assert not session.cancel("7")
        assert session.cancel(7)
    await asyncio.wait({task})
    assert task.cancelled()
    assert not session.cancel(7)
    assert session.is_idle


async def test_a_client_without_a_session_cancels_nothing_by_name() -> None:
    session = Sessions().of("token", "")
    task = asyncio.create_task(asyncio.sleep(0))
    with session.running(7, task):
        assert not session.cancel(7)
    await task


async def test_a_session_whose_call_still_runs_is_not_forgotten() -> None:
    sessions = Sessions(most=1)
    session = sessions.of("token", "a")
    task = asyncio.create_task(asyncio.sleep(0))
    with session.running(7, task):
        sessions.of("token", "b")
        assert sessions.of("token", "a") is session
    await task
