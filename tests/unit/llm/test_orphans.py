"""Calls to a provider whose callers are gone: waited for, and their usage recorded."""

import asyncio
import time

import pytest

from loom_common.attribution import Attribution
from loom_common.call import Call, bind
from loom_common.ledger import FakeLedgerSink
from loom_llm.app.completion import Completion
from loom_llm.app.health import ProviderHealth
from loom_llm.app.orphans import Orphans
from loom_llm.domain.client import DEFAULT_MAX_TOKENS, LLMResult, ResponseFormat
from loom_llm.domain.failures import FailureKind, ProviderError
from loom_llm.providers.retrying import RetryingClient, RetryPolicy

FOR_ACME = Attribution(org="acme", namespace="team", subject="sa:bot", feature="memory.ask", run_id="run-1")


class GatedClient:
    """Answers once a test lets it; fails first as often as it is told."""

    provider = "openai"
    model = "gpt-6-luna"

    def __init__(self, *failures: ProviderError) -> None:
        self.failures = list(failures)
        self.calls = 0
        self.begun, self.release = asyncio.Event(), asyncio.Event()

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        self.calls += 1
        self.begun.set()
        await self.release.wait()
        if self.failures:
            raise self.failures.pop(0)
        return LLMResult("text", self.provider, self.model, input_tokens=11, output_tokens=7)


def running_call(**more: object) -> Call:
    return Call(op="llm.complete", request_id="req-1", attribution=FOR_ACME, **more)  # type: ignore[arg-type]  # any


async def leave(completion: Completion, client: GatedClient, call: Call) -> None:
    """Calls, and leaves while the provider works."""
    with bind(call):
        task = asyncio.create_task(completion.complete("", "a"))
    async with asyncio.timeout(5):
        await client.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("left_s", "status"), [(60.0, "CANCELLED"), (0.0, "DEADLINE_EXCEEDED")])
async def test_what_a_call_spent_after_its_caller_left_is_recorded_under_its_request(
    left_s: float, status: str
) -> None:
    client, sink = GatedClient(), FakeLedgerSink()
    call = running_call(deadline=time.monotonic() + left_s)
    async with Orphans(sink) as orphans:
        await leave(Completion(client, ProviderHealth(), orphans, reads_llm_free=False), client, call)
        assert sink.entries == []
        client.release.set()
    (entry,) = sink.entries
    row = entry.row
    assert (row.request_id, row.recorder, row.op, row.status) == ("req-1", "llm", "llm.complete", status)
    assert (row.org, row.namespace, row.subject, row.run_id) == ("acme", "team", "sa:bot", "run-1")
    assert (row.input_tokens, row.output_tokens, row.llm_call_count, row.model) == (11, 7, 1, "gpt-6-luna")
    assert not row.refused
    # The caller's own count stays empty: what is in the ledger twice is billed twice.
    assert not call.usage


async def test_a_call_that_its_caller_waits_for_leaves_no_row_of_its_own() -> None:
    client, sink = GatedClient(), FakeLedgerSink()
    client.release.set()
    async with Orphans(sink) as orphans:
        with bind(running_call()) as call:
            await Completion(client, ProviderHealth(), orphans, reads_llm_free=False).complete("", "a")
    assert sink.entries == []
    assert call.usage.input_tokens == 11


async def test_a_call_that_nobody_waits_for_is_not_tried_again() -> None:
    client, sink = GatedClient(ProviderError("openai", FailureKind.STATUS, status=503)), FakeLedgerSink()
    retrying = RetryingClient(client, RetryPolicy(attempts=4, max_wait_s=0.0, total_s=5.0))
    async with Orphans(sink) as orphans:
        await leave(Completion(retrying, ProviderHealth(), orphans, reads_llm_free=False), client, running_call())
        client.release.set()
    assert client.calls == 1
    assert sink.entries == []


async def test_a_stop_waits_for_no_hung_provider() -> None:
    client, sink = GatedClient(), FakeLedgerSink()
    async with asyncio.timeout(5):
        async with Orphans(sink) as orphans:
            await leave(Completion(client, ProviderHealth(), orphans, reads_llm_free=False), client, running_call())
    assert sink.entries == []
