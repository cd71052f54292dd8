"""Rerankers over HTTP against the stand-in: what they may answer, and what fails."""

import gzip
import json
from collections.abc import AsyncIterator

import pytest
from support.llm import NO_RETRIES
from support.providers import TEST_KEY, Fault, ProviderStandIn, Reply

from loom_common.providers import FailureKind, ProviderError
from loom_common.providers.http import ProviderHttp
from loom_common.telemetry.genai import Operation
from loom_llm.domain.endpoints import Address, RerankEndpoint
from loom_llm.domain.ranking import Ranked
from loom_llm.providers.endpoints import EndpointClient, Scored, Target, read_rerank, rerank_body
from loom_llm.providers.retrying import retry_policy

GOOD: dict[str, object] = {"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]}


async def no_wait(seconds: float) -> None:
    return None


@pytest.fixture
async def client() -> AsyncIterator[EndpointClient]:
    made = EndpointClient(lambda: ProviderHttp(timeout_s=5, connect_timeout_s=5), NO_RETRIES)
    yield made
    await made.aclose()


async def rerank(client: EndpointClient, stand_in: ProviderStandIn, *, timeout_s: float = 5.0) -> Scored:
    address = Address(f"{stand_in.openai_url}/rerank", {"x-secret": TEST_KEY})
    endpoint = RerankEndpoint(address, model="m")
    target = Target("rerank:bge", Operation.RERANK, address, "m", timeout_s)
    body = rerank_body(endpoint, "q", ["a", "b"])
    return await client.ask(target, body, lambda answer: read_rerank(answer, endpoint, 2))


async def test_an_endpoint_gets_its_headers_and_its_scores_come_back(
    client: EndpointClient, stand_in: ProviderStandIn
) -> None:
    stand_in.script(Reply(body=json.dumps(GOOD)))
    assert (await rerank(client, stand_in)).results == (Ranked(1, 0.9), Ranked(0, 0.1))
    [request] = stand_in.requests
    assert (request.method, request.path, request.headers["x-secret"]) == ("POST", "/v1/rerank", TEST_KEY)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(body='{"results": [{"index": 0, "score": NaN}, {"index": 1, "score": 1}]}'), FailureKind.MALFORMED),
        (Reply(body='{"results": [{"index": 0, "score": 0.1}]}'), FailureKind.MALFORMED),
        (Reply(body=[{"index": at, "score": 0.1} for at in range(3)]), FailureKind.MALFORMED),
        (Reply(body="<html>sign in</html>"), FailureKind.MALFORMED),
        (Reply(body=""), FailureKind.MALFORMED),
        (Reply(body='{"results": [{"index": 0, "sco'), FailureKind.MALFORMED),
        (Reply(body=b"\xff\xfe{}"), FailureKind.MALFORMED),
        (Reply(body="[" * 100_000), FailureKind.MALFORMED),
        (Reply(body=json.dumps({**GOOD, "id": "x" * (1 << 20)})), FailureKind.MALFORMED),
        (Reply(body=gzip.compress(b" " * (33 << 20), 9), headers={"content-encoding": "gzip"}), FailureKind.CONNECTION),
        (Reply(body=json.dumps(GOOD), fault=Fault.HALF_BODY), FailureKind.CONNECTION),
        (Reply(fault=Fault.RESET), FailureKind.CONNECTION),
    ],
)
async def test_an_answer_that_is_no_ranking_fails_and_is_quoted_nowhere(
    reply: Reply, kind: FailureKind, client: EndpointClient, stand_in: ProviderStandIn
) -> None:
    stand_in.script(reply)
    with pytest.raises(ProviderError) as caught:
        await rerank(client, stand_in)
    assert (caught.value.provider, caught.value.kind) == ("rerank:bge", kind)
    assert caught.value.__cause__ is None
    assert len(stand_in.requests) == 1


@pytest.mark.parametrize(("status", "sent"), [(400, 1), (401, 1), (404, 1), (422, 1), (429, 3), (500, 3), (503, 3)])
async def test_a_status_is_told_and_tried_again_where_that_may_help(
    status: int, sent: int, stand_in: ProviderStandIn
) -> None:
    stand_in.script(*[Reply.error(status, f"key {TEST_KEY}")] * 3)
    policy = retry_policy(attempts=3, max_wait_s=1.0, total_s=5.0)
    client = EndpointClient(lambda: ProviderHttp(timeout_s=5, connect_timeout_s=5), policy, sleep=no_wait)
    with pytest.raises(ProviderError) as caught:
        await rerank(client, stand_in)
    await client.aclose()
    assert (caught.value.kind, caught.value.status, caught.value.attempts) == (FailureKind.STATUS, status, sent)
    assert TEST_KEY not in f"{caught.value!r}"
    assert len(stand_in.requests) == sent


async def test_a_silent_endpoint_is_cut_at_its_own_time(client: EndpointClient, stand_in: ProviderStandIn) -> None:
    stand_in.script(Reply(fault=Fault.HANG))
    with pytest.raises(ProviderError) as caught:
        await rerank(client, stand_in, timeout_s=0.05)
    assert caught.value.kind is FailureKind.TIMEOUT


async def test_a_redirect_elsewhere_carries_neither_texts_nor_headers(
    client: EndpointClient, stand_in: ProviderStandIn
) -> None:
    async with ProviderStandIn().running() as elsewhere:
        stand_in.script(Reply(307, headers={"location": f"{elsewhere.openai_url}/rerank"}))
        with pytest.raises(ProviderError) as caught:
            await rerank(client, stand_in)
        assert caught.value.status == 307
        assert elsewhere.requests == []
