"""Requests to a remote model whose callers are gone: what they cost is told to one who is there, or recorded."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self

import pytest

from loom_common.attribution import Attribution
from loom_common.auth.claims import NO_NAMESPACE
from loom_common.call import Call, bind
from loom_common.errors import EmbedTimeout
from loom_common.ledger import FakeLedgerSink
from loom_common.orphans import Orphans
from loom_common.providers import FailureKind, ProviderError, ProviderHealth
from loom_embedding.app.queries import QueryCache, QueryEmbedding
from loom_embedding.app.texts import TextEmbedding
from loom_embedding.domain.chunking import chunk_spans
from loom_embedding.domain.embedder import ServedModel
from loom_embedding.providers.api import Answer
from loom_embedding.providers.fake import FakeTokens
from loom_embedding.providers.remote import REQUEST_TEXTS, RemoteEmbedder, retry_policy

SERVED = ServedModel("text-embedding-3-small", 2, "openai", window_tokens=100, special_tokens=0, noise_floor=0.3)
TOKENS = 7


class HeldApi:
    """An `EmbeddingApi` that answers when it is let, each text of seven tokens."""

    provider = "openai"

    def __init__(self) -> None:
        self.requests = 0
        self.changed = asyncio.Event()
        self.go = asyncio.Event()
        self.free: set[str] = set()
        """Texts that are answered at once."""
        self.failure: ProviderError | None = None

    async def embed(self, texts: Sequence[str]) -> Answer:
        self.requests += 1
        self.changed.set()
        if not self.free.issuperset(texts):
            await self.go.wait()
            if self.failure is not None:
                raise self.failure
        return Answer([[1.0, 0.0]] * len(texts), TOKENS * len(texts))

    async def aclose(self) -> None:
        pass


class Rig:
    """Both paths over a held provider, and the ledger."""

    def __init__(self, *, most: int = 10) -> None:
        self.api, self.sink = HeldApi(), FakeLedgerSink()
        self.orphans = Orphans(self.sink, recorder="embedding", op="embedding.embed_many", most=most)
        tokens, policy = FakeTokens(), retry_policy(3, 1.0)
        embedder = RemoteEmbedder(SERVED, self.api, tokens, policy, ProviderHealth(), orphans=self.orphans)
        cache = QueryCache(10, 60.0, time.monotonic)
        self.queries = QueryEmbedding(embedder, SERVED, tokens, cache, orphans=self.orphans)
        self.texts = TextEmbedding(embedder, SERVED, tokens)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for _step in range(5):  # until a call that was cut is known to have ended
            await asyncio.sleep(0)
        async with self.orphans:
            pass

    def begin(self, call: Call, work: Callable[[], Coroutine[Any, Any, object]]) -> asyncio.Task[object]:
        with bind(call):
            return asyncio.create_task(work())

    def ask(self, call: Call, **more: int) -> asyncio.Task[object]:
        return self.begin(call, lambda: self.queries.embed("dark mode", **more))

    async def requests(self, count: int) -> None:
        async with asyncio.timeout(5):
            while self.api.requests < count:
                self.api.changed.clear()
                await self.api.changed.wait()

    def recorded(self) -> list[tuple[str, str, int]]:
        """Returns request, outcome and tokens of each row."""
        return [(one.row.request_id, one.row.status, one.row.embedding_tokens) for one in self.sink.entries]


def call_of(request_id: str, *, org: str = "acme", left_s: float = 60.0) -> Call:
    attribution = Attribution(org=org, namespace="team", subject=f"sa:{request_id}")
    deadline = time.monotonic() + left_s
    return Call(op="embedding.embed_query", request_id=request_id, attribution=attribution, deadline=deadline)


async def leave(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("org", ["acme", ""])
@pytest.mark.parametrize(("left_s", "status"), [(60.0, "CANCELLED"), (0.0, "DEADLINE_EXCEEDED")])
async def test_a_query_whose_caller_left_is_recorded_under_its_request(org: str, left_s: float, status: str) -> None:
    rig, call = Rig(), call_of("r1", org=org, left_s=left_s)
    async with rig:
        task = rig.ask(call)
        await rig.requests(1)
        await leave(task)
        rig.api.go.set()
    [entry] = rig.sink.entries
    row = entry.row
    assert (row.request_id, row.recorder, row.op, row.status) == ("r1", "embedding", "embedding.embed_query", status)
    assert (row.subject, row.embedding_tokens, row.model) == ("sa:r1", TOKENS, SERVED.name)
    assert (row.org, row.namespace) == (("acme", "team") if org else (NO_NAMESPACE, NO_NAMESPACE))
    assert row.upstream_cost_usd == pytest.approx(TOKENS / 1000 * 0.00002)
    assert not call.usage


async def test_each_attempt_that_its_bound_ended_is_recorded_once() -> None:
    rig, call = Rig(), call_of("r1")
    async with rig:
        with pytest.raises(EmbedTimeout):
            await rig.ask(call, bound_ms=10, retries=1)
        rig.api.go.set()
    assert rig.recorded() == [("r1", "CANCELLED", TOKENS)] * 2
    assert not call.usage


async def test_an_attempt_that_answers_in_time_is_told_to_the_caller_and_leaves_no_row() -> None:
    rig, call = Rig(), call_of("r1")
    rig.api.go.set()
    async with rig:
        await rig.ask(call)
    assert (call.usage.embedding_tokens, rig.sink.entries) == (TOKENS, [])


async def test_a_shared_query_is_told_to_one_who_is_still_there_and_to_no_other() -> None:
    rig = Rig()
    calls = [call_of(f"r{number}") for number in range(4)]
    async with rig:
        tasks = [rig.ask(call) for call in calls]
        await rig.requests(1)
        await leave(tasks[0])  # whose call began it
        rig.api.go.set()
        await asyncio.gather(*tasks[1:])
    assert (rig.api.requests, rig.sink.entries) == (1, [])
    assert sorted(call.usage.embedding_tokens for call in calls) == [0, 0, 0, TOKENS]
    assert not calls[0].usage


async def test_a_shared_query_that_all_left_is_recorded_once() -> None:
    rig = Rig()
    calls = [call_of(f"r{number}") for number in range(3)]
    async with rig:
        tasks = [rig.ask(call) for call in calls]
        await rig.requests(1)
        for task in tasks:
            await leave(task)
        rig.api.go.set()
    assert rig.recorded() == [("r0", "CANCELLED", TOKENS)]
    assert not any(call.usage for call in calls)


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("staying", [0, 1])
async def test_whenever_a_caller_leaves_a_query_is_counted_exactly_once(steps: int, staying: int) -> None:
    rig = Rig()
    calls = [call_of(f"r{number}") for number in range(2 + staying)]
    async with rig:
        tasks = [rig.ask(call) for call in calls]
        await rig.requests(1)
        rig.api.go.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in tasks[:2]:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    gone = [call for call, end in zip(calls, ended, strict=True) if isinstance(end, asyncio.CancelledError)]
    assert not any(call.usage for call in gone)
    told = sum(call.usage.embedding_tokens for call in calls)
    assert told + sum(tokens for _, _, tokens in rig.recorded()) == TOKENS
    assert told == (0 if len(gone) == len(calls) else TOKENS)


async def test_chunks_of_a_long_query_that_were_answered_before_its_caller_left_are_recorded_too() -> None:
    rig, call = Rig(), call_of("r1")
    words = " ".join(f"word{number}" for number in range(150))
    first, *others = chunk_spans(words, FakeTokens(), SERVED.budget_tokens)
    rig.api.free.add(words[first.start : first.end])
    async with rig:
        task = rig.begin(call, lambda: rig.queries.embed(words))
        await rig.requests(1 + len(others))
        await leave(task)
        rig.api.go.set()
    assert rig.recorded() == [("r1", "CANCELLED", TOKENS)] * (1 + len(others))
    assert not call.usage


async def test_stored_texts_whose_caller_left_are_recorded_request_by_request_and_not_asked_for_again() -> None:
    rig, call = Rig(), call_of("r1")
    call.op = "embedding.embed_many"
    async with rig:
        task = rig.begin(call, lambda: rig.texts.embed([f"t{number}" for number in range(REQUEST_TEXTS + 1)]))
        await rig.requests(2)
        await leave(task)
        rig.api.go.set()
    assert sorted(tokens for _, _, tokens in rig.recorded()) == [TOKENS, TOKENS * REQUEST_TEXTS]
    assert {entry.row.op for entry in rig.sink.entries} == {"embedding.embed_many"}
    assert rig.api.requests == 2


async def test_a_request_that_fails_after_its_caller_left_is_neither_recorded_nor_sent_again() -> None:
    rig = Rig()
    rig.api.failure = ProviderError("openai", FailureKind.STATUS, status=503)
    async with rig:
        task = rig.begin(call_of("r1"), lambda: rig.texts.embed(["one"]))
        await rig.requests(1)
        await leave(task)
        rig.api.go.set()
    assert (rig.api.requests, rig.sink.entries) == (1, [])


async def test_no_more_requests_outlive_their_callers_than_may() -> None:
    rig = Rig(most=1)
    async with rig:
        tasks = [rig.begin(call_of(f"r{n}"), lambda n=n: rig.queries.embed(f"text {n}")) for n in range(3)]  # type: ignore[misc]  # bound now
        await rig.requests(3)
        for task in tasks:
            await leave(task)
        await asyncio.sleep(0)
        rig.api.go.set()
    assert len(rig.sink.entries) == 1
