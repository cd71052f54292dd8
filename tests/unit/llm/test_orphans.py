"""Calls to a provider whose callers are gone: waited for, and their usage recorded."""

import asyncio
import time

import pytest
from support.llm import ScriptedClient, failure, models_of, orphans_of

from loom_common.attribution import Attribution
from loom_common.call import Call, bind
from loom_common.ledger import FakeLedgerSink
from loom_common.orphans import Orphans
from loom_common.prices import model_cost_usd
from loom_llm.app.completion import Completion, Prompt
from loom_llm.app.gate import Gate
from loom_llm.domain.client import LLMClient
from loom_llm.providers.retrying import RetryingClient, retry_policy

FOR_ACME = Attribution(org="acme", namespace="team", subject="sa:bot", feature="memory.ask", run_id="run-1")


def completion_of(client: LLMClient, orphans: Orphans) -> Completion:
    return Completion(models_of(client), orphans, Gate(reads_llm_free=False))


def running_call(**more: object) -> Call:
    return Call(op="llm.complete", request_id="req-1", attribution=FOR_ACME, **more)  # type: ignore[arg-type]  # any


async def leave(completion: Completion, client: ScriptedClient, call: Call) -> None:
    """Calls, and leaves while the provider works."""
    with bind(call):
        task = asyncio.create_task(completion.complete(Prompt("", "a")))
    async with asyncio.timeout(5):
        await client.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("left_s", "status"), [(60.0, "CANCELLED"), (0.0, "DEADLINE_EXCEEDED")])
async def test_what_a_call_spent_after_its_caller_left_is_recorded_under_its_request(
    left_s: float, status: str
) -> None:
    client, sink = ScriptedClient(), FakeLedgerSink()
    call = running_call(deadline=time.monotonic() + left_s)
    async with orphans_of(sink) as orphans:
        await leave(completion_of(client, orphans), client, call)
        assert sink.entries == []
        client.release.set()
    (entry,) = sink.entries
    row = entry.row
    assert (row.request_id, row.recorder, row.op, row.status) == ("req-1", "llm", "llm.complete", status)
    assert (row.org, row.namespace, row.subject, row.run_id) == ("acme", "team", "sa:bot", "run-1")
    assert (row.input_tokens, row.output_tokens, row.llm_call_count, row.model) == (11, 7, 1, "gpt-6-luna")
    assert row.upstream_cost_usd == pytest.approx(model_cost_usd("gpt-6-luna", 11, 7)) != 0
    assert not row.refused
    # The caller's own count stays empty: what is in the ledger twice is billed twice.
    assert not call.usage


async def test_a_call_that_its_caller_waits_for_leaves_no_row_of_its_own() -> None:
    client, sink = ScriptedClient(), FakeLedgerSink()
    client.release.set()
    async with orphans_of(sink) as orphans:
        with bind(running_call()) as call:
            await completion_of(client, orphans).complete(Prompt("", "a"))
    assert sink.entries == []
    assert call.usage.input_tokens == 11


async def test_a_call_that_nobody_waits_for_is_not_tried_again() -> None:
    client, sink = ScriptedClient(failure(503), held=True), FakeLedgerSink()
    retrying = RetryingClient(client, retry_policy(attempts=4, max_wait_s=0.0, total_s=5.0))
    async with orphans_of(sink) as orphans:
        await leave(completion_of(retrying, orphans), client, running_call())
        client.release.set()
    assert client.calls == 1
    assert sink.entries == []


async def test_a_stop_waits_for_no_hung_provider() -> None:
    client, sink = ScriptedClient(), FakeLedgerSink()
    async with asyncio.timeout(5):
        async with orphans_of(sink) as orphans:
            await leave(completion_of(client, orphans), client, running_call())
    assert sink.entries == []
