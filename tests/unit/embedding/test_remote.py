"""A remote model: what is sent again, what is divided, what is refused before and after it is sent."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.embedding import MakeRig, RemoteRig
from support.providers import (
    Fault,
    ProviderStandIn,
    Received,
    Reply,
    embedding_of,
    gemini_embeddings,
    openai_embeddings,
    texts_of,
)

from loom_common.attribution import Attribution
from loom_common.call import Call, bind
from loom_common.errors import InvalidArgument, LoomError, Overloaded, ProviderFailed, Reason
from loom_embedding.app.queries import QueryCache, QueryEmbedding
from loom_embedding.domain.embedder import Vector
from loom_embedding.domain.vectors import MalformedEmbedding, ProviderBusy, unit_vector
from loom_embedding.providers.remote import RemoteEmbedder, retry_policy

BOTH = pytest.mark.parametrize("provider", ["openai", "gemini"])
RETRIED = [408, 409, 425, 429, 500, 502, 503, 504]


def refusing(*bad: str, place: bool = False, provider: str = "openai") -> Callable[[Received], Reply | None]:
    """Returns a rule that refuses a request with one of these texts in it, with or without its place."""

    def rule(request: Received) -> Reply | None:
        texts = texts_of(request)
        for at, text in enumerate(texts):
            if text in bad:
                name = "input" if provider == "openai" else "requests"
                return Reply.error(400, f"Invalid {name}[{at}]" if place else "something in here is bad")
        return None

    return rule


def right(text: str) -> Any:
    return pytest.approx(unit_vector(embedding_of(text, 8), 8), abs=1e-6)


@BOTH
async def test_a_status_that_may_pass_is_tried_again(provider: str, stand_in: ProviderStandIn, rig: MakeRig) -> None:
    made = rig(provider)
    for status in RETRIED:  # one client for all: making one costs more than the calls
        stand_in.requests.clear()
        made.waits.clear()
        stand_in.script(Reply.error(status))
        assert await made.embedder.embed_many(["one"]) == [right("one")], status
        assert (len(stand_in.requests), made.waits, made.health.failure) == (2, [0.5], None), status


@BOTH
@pytest.mark.parametrize(("fault", "timeout_s"), [(Fault.RESET, 30), (Fault.HALF_BODY, 30), (Fault.HANG, 1)])
async def test_a_broken_transport_is_tried_again(
    provider: str, fault: Fault, timeout_s: float, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.script(Reply(body={"half": "of it"}, fault=fault))
    made = rig(provider, timeout_s=timeout_s)
    assert await made.embedder.embed_many(["one"]) == [right("one")]
    assert made.waits == [0.5]


@BOTH
async def test_any_other_status_fails_at_once_and_shows_on_health(
    provider: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    made = rig(provider)
    for status in (401, 403, 404, 405, 418, 501, 529):
        stand_in.script(Reply.error(status))
        with pytest.raises(ProviderFailed) as caught:
            await made.embedder.embed_many(["one", "two"])
        assert not isinstance(caught.value, ProviderBusy)
        assert caught.value.detail == {"provider": provider, "kind": "status", "attempts": 1, "status": status}
        assert [problem.code for problem in made.health.problems()] == [f"provider_failing:{provider}"]
        await made.embedder.embed_many(["one"])
        assert made.health.problems() == []


@BOTH
async def test_an_answer_that_cannot_be_read_is_malformed_and_not_tried_again(
    provider: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.script(Reply(body="{half"))
    with pytest.raises(MalformedEmbedding):
        await rig(provider).embedder.embed_many(["one", "two"])
    assert len(stand_in.requests) == 1


@BOTH
async def test_the_waits_double_up_to_their_cap_and_the_attempts_end(
    provider: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.script(*[Reply.error(503)] * 9)
    made = rig(provider, attempts=6, max_wait_s=3.0)
    with pytest.raises(ProviderBusy) as caught:
        await made.embedder.embed_many(["one"])
    assert made.waits == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert caught.value.detail["attempts"] == len(stand_in.requests) == 6


@BOTH
@pytest.mark.parametrize(("asked", "waited_s"), [("7", 7.0), ("0.1", 0.5), ("10", 10.0)])
async def test_a_wait_that_the_provider_asks_for_is_kept_within_the_cap(
    provider: str, asked: str, waited_s: float, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.script(Reply.error(429, retry_after=asked))
    made = rig(provider)
    await made.embedder.embed_many(["one"])
    assert made.waits == [waited_s]


@BOTH
async def test_a_wait_longer_than_the_cap_ends_the_attempts_and_is_told(
    provider: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.script(Reply.error(429, retry_after="120"))
    made = rig(provider)
    with pytest.raises(ProviderFailed) as caught:
        await made.embedder.embed_many(["one"])
    assert (caught.value.retry_after_s, made.waits, len(stand_in.requests)) == (120.0, [], 1)


async def test_a_wait_that_the_caller_does_not_outlast_is_not_begun(stand_in: ProviderStandIn, rig: MakeRig) -> None:
    stand_in.script(*[Reply.error(503)] * 9)
    made = rig("openai")
    with bind(Call(deadline=time.monotonic() + 0.4)), pytest.raises(ProviderBusy):
        await made.embedder.embed_many(["one"])
    assert made.waits == []


@BOTH
async def test_a_query_has_one_attempt_and_says_whether_another_may_help(
    provider: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.script(Reply.error(503), Reply.error(401))
    made = rig(provider)
    with pytest.raises(ProviderBusy):
        await made.embedder.embed("one")
    with pytest.raises(ProviderFailed) as caught:
        await made.embedder.embed("one")
    assert not isinstance(caught.value, ProviderBusy)
    assert (len(stand_in.requests), made.waits) == (2, [])


@BOTH
@pytest.mark.parametrize("place", [True, False])
async def test_a_refused_text_loses_no_other_whether_or_not_it_is_named(
    provider: str, place: bool, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.rule = refusing("bad", place=place, provider=provider)
    texts = [f"text {number}" for number in range(100)]
    texts[37] = "bad"
    made = rig(provider)
    outcomes = await made.embedder.embed_each(texts)
    for text, outcome in zip(texts, outcomes, strict=True):
        if text == "bad":
            assert isinstance(outcome, LoomError)
            assert outcome.reason is Reason.PROVIDER_FAILED
        else:
            assert outcome == right(text)
    assert len(stand_in.requests) == (2 if place else 13)
    assert made.health.failure is None


async def test_several_refused_texts_lose_no_other(stand_in: ProviderStandIn, rig: MakeRig) -> None:
    texts = [f"text {number}" for number in range(16)]
    stand_in.rule = refusing("text 1", "text 15")
    outcomes = await rig("openai").embedder.embed_each(texts)
    assert [at for at, outcome in enumerate(outcomes) if isinstance(outcome, LoomError)] == [1, 15]


@BOTH
async def test_a_request_that_is_refused_whatever_is_in_it_is_given_up_after_a_bounded_number(
    provider: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.rule = lambda request: Reply.error(400, "no such model")
    made = rig(provider)
    with pytest.raises(ProviderFailed) as caught:
        await made.embedder.embed_each([f"text {number}" for number in range(500)])
    assert caught.value.detail["status"] == 400
    assert len(stand_in.requests) <= 4 * 32
    assert made.health.failure is not None


async def test_one_refused_text_alone_fails_alone(stand_in: ProviderStandIn, rig: MakeRig) -> None:
    stand_in.rule = refusing("bad")
    [outcome] = await rig("openai").embedder.embed_each(["bad"])
    assert isinstance(outcome, ProviderFailed)
    with pytest.raises(ProviderFailed):
        await rig("openai").embedder.embed_many(["bad"])


async def test_a_failing_batch_keeps_the_vectors_of_the_others(stand_in: ProviderStandIn, rig: MakeRig) -> None:
    stand_in.rule = lambda request: Reply.error(500) if "text 150" in texts_of(request) else None
    made = rig("openai")
    outcomes = await made.embedder.embed_each([f"text {number}" for number in range(300)])
    failed = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, LoomError)]
    assert failed == list(range(100, 200))
    assert made.health.failure is not None


@BOTH
@pytest.mark.parametrize(
    ("row", "word"),
    [
        ([], "width"),
        ([1.0] * 7, "width"),
        ([1.0] * 9, "width"),
        ([math.nan, *[1.0] * 7], "numbers"),
        ([math.inf, *[1.0] * 7], "numbers"),
        ([0.0] * 8, "direction"),
    ],
)
async def test_a_row_that_is_no_vector_is_malformed_and_loses_no_other(
    provider: str, row: list[float], word: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    make = openai_embeddings if provider == "openai" else gemini_embeddings

    def rule(request: Received) -> Reply:
        rows = [row if text == "bad" else embedding_of(text, 8) for text in texts_of(request)]
        return Reply(body=make(request.json, rows))

    stand_in.rule = rule
    made = rig(provider)
    first, bad, last = await made.embedder.embed_each(["one", "bad", "two"])
    assert (first, last) == (right("one"), right("two"))
    assert isinstance(bad, MalformedEmbedding)
    assert word in str(bad)
    with pytest.raises(MalformedEmbedding):
        await made.embedder.embed("bad")
    assert [problem.code for problem in made.health.problems()] == [f"provider_failing:{provider}"]


@BOTH
@pytest.mark.parametrize("values", ["text", {"a": 1}, [[1.0]], None, ["x"] * 8])
async def test_a_row_of_another_shape_is_malformed(
    provider: str, values: Any, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    openai = {"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": values}]}
    usage = {"usage": {"prompt_tokens": 1, "total_tokens": 1}}
    stand_in.script(Reply(body={**openai, **usage, "embeddings": [{"values": values}]}))
    with pytest.raises(MalformedEmbedding):
        await rig(provider).embedder.embed("one")


@BOTH
async def test_fewer_vectors_than_texts_are_asked_for_again_in_parts(
    provider: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    make = openai_embeddings if provider == "openai" else gemini_embeddings

    def leaving_out(request: Received) -> Reply:
        return Reply(body=make(request.json, [embedding_of(text, 8) for text in texts_of(request) if text != "bad"]))

    stand_in.rule = leaving_out
    outcomes = await rig(provider).embedder.embed_each(["one", "bad", "two", "three"])
    assert [outcome for outcome in outcomes if not isinstance(outcome, LoomError)] == [
        right("one"),
        right("two"),
        right("three"),
    ]
    assert isinstance(outcomes[1], MalformedEmbedding)


@pytest.mark.parametrize(("provider", "word", "most"), [("openai", " word", 8191), ("gemini", "7", 2048)])
async def test_a_text_longer_than_the_window_is_refused_by_name_before_it_is_sent(
    provider: str, word: str, most: int, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    embedder = rig(provider).embedder
    fits, oversize = word * most, word * (most + 1)
    await embedder.embed(fits)
    stand_in.requests.clear()
    with pytest.raises(InvalidArgument) as query:
        await embedder.embed(oversize)
    assert query.value.fields[0].field == "text"
    with pytest.raises(InvalidArgument) as stored:
        await embedder.embed_many(["short", oversize])
    assert stored.value.fields[0].field == "texts[1]"
    assert stand_in.requests == []
    short, long = await embedder.embed_each(["short", oversize])
    assert short == right("short")
    assert isinstance(long, InvalidArgument)


async def test_a_request_holds_no_more_tokens_than_the_provider_takes(stand_in: ProviderStandIn, rig: MakeRig) -> None:
    await rig("openai").embedder.embed_many([" word" * 8000] * 40)
    assert sorted(len(texts_of(request)) for request in stand_in.requests) == [9, 31]


async def test_more_texts_than_may_wait_are_refused(stand_in: ProviderStandIn, rig: MakeRig) -> None:
    made = rig("openai")
    policy = retry_policy(1, 1.0)
    full = RemoteEmbedder(made.served, made.api, made.tokens, policy, made.health, max_waiting=1)
    stand_in.script(Reply(fault=Fault.HANG))
    hung = asyncio.create_task(full.embed_many(["one"]))
    await asyncio.wait_for(stand_in.arrived.wait(), 5)
    with pytest.raises(Overloaded):
        await full.embed_many(["two"])
    hung.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hung
    assert await full.embed_many(["two"]) == [right("two")]


@BOTH
async def test_a_cancelled_call_is_no_failure_of_the_provider(
    provider: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.script(Reply(fault=Fault.HANG))
    made = rig(provider)
    task = asyncio.create_task(made.embedder.embed_many(["one"]))
    await asyncio.wait_for(stand_in.arrived.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert made.health.failure is None


async def test_alone_in_a_batch_and_divided_a_text_has_the_same_vector(stand_in: ProviderStandIn, rig: MakeRig) -> None:
    embedder = rig("openai").embedder
    texts = ["one", "two", "three"]
    together = await embedder.embed_many(texts)
    alone = [await embedder.embed(text) for text in texts]
    stand_in.rule = refusing("bad")
    divided = await embedder.embed_each([*texts, "bad"])
    for first, second, third in zip(together, alone, divided, strict=False):
        assert np.array_equal(first, second)
        assert np.array_equal(first, np.asarray(third))


class Queries:
    """Queries over a remote model; notes what they waited."""

    def __init__(self, made: RemoteRig) -> None:
        self.waits: list[float] = []
        cache = QueryCache(10, 60.0, time.monotonic)
        self._queries = QueryEmbedding(made.embedder, made.served, made.tokens, cache, sleep=self._wait)

    async def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def ask(self, bound_ms: int = 2_500, retries: int = 1) -> Vector:
        with bind(Call(attribution=Attribution(org="acme"))):
            return await self._queries.embed("one", bound_ms=bound_ms, retries=retries)


async def test_a_query_is_tried_again_after_a_failure_that_may_pass(stand_in: ProviderStandIn, rig: MakeRig) -> None:
    stand_in.script(Reply.error(503))
    queries = Queries(rig("openai"))
    assert await queries.ask() == right("one")
    assert queries.waits == [0.5]


@pytest.mark.parametrize(
    ("replies", "retries", "requests"),
    [
        ([Reply.error(401)], 1, 1),  # it does not pass
        ([Reply.error(503)] * 2, 1, 2),  # no attempt is left
        ([Reply.error(503), Reply.error(401)], 1, 2),  # it does not pass any more
        ([Reply.error(503)], 0, 1),
        ([Reply.error(429, retry_after="3")], 1, 1),  # the wait is longer than an attempt
    ],
)
async def test_a_query_fails_where_another_attempt_does_not_help(
    replies: list[Reply], retries: int, requests: int, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.script(*replies)
    with pytest.raises(ProviderFailed) as caught:
        await Queries(rig("openai")).ask(retries=retries)
    assert len(stand_in.requests) == requests
    assert caught.value.detail["attempts"] == requests
    assert ("2 attempts" in caught.value.message) == (requests == 2)


async def test_a_query_that_hangs_is_tried_again_within_its_bound_and_is_no_failure_of_the_provider(
    stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.script(Reply(fault=Fault.HANG))
    made = rig("openai")
    assert await Queries(made).ask(bound_ms=200) == right("one")
    assert made.health.failure is None
