"""The cache, the price and the span of a call, through the service as a process opens it."""

from collections.abc import AsyncIterator

import pytest
from support.llm_service import Rig
from support.providers import TEST_KEY, ProviderStandIn

from loom.llm.v1 import llm_pb2 as pb
from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_common.attribution import Attribution
from loom_common.call import Call, bind
from loom_common.errors import InvalidArgument
from loom_common.prices import model_cost_usd
from loom_common.usage import Usage
from loom_llm.wiring import open_service

FOR_ACME = Attribution(org="acme", namespace="team", feature="memory.ask")


@pytest.fixture
async def stub(rig: Rig) -> AsyncIterator["pb_grpc.LlmServiceAsyncStub"]:
    async with (
        open_service(rig.settings(OPENAI_API_KEY=TEST_KEY), rig.clickhouse) as server,
        rig.deployment.channel(server.address, "memory") as channel,
    ):
        yield pb_grpc.LlmServiceStub(channel)


async def ask(stub: "pb_grpc.LlmServiceAsyncStub", cache: pb.CacheUse | None) -> tuple[pb.CompleteResponse, Usage]:
    request = pb.CompleteRequest(
        system="be brief",
        user="hi",
        cache=cache,
        prompt=pb.PromptReference(family="structured_output", name="json_directive", version="1"),
    )
    with bind(Call(attribution=FOR_ACME)) as call:
        return await stub.Complete(request), call.usage


async def test_a_cached_answer_costs_nothing_says_what_it_saved_and_goes_when_its_memory_is_erased(
    stub: "pb_grpc.LlmServiceAsyncStub", stand_in: ProviderStandIn
) -> None:
    use = pb.CacheUse(enabled=True, window_keys=["k1"], tags=["consolidated", "src:k2"])
    first, spent = await ask(stub, use)
    again, saved = await ask(stub, use)
    cost = model_cost_usd(first.model, first.input_tokens, first.output_tokens)
    assert cost > 0
    assert (first.from_cache, spent.upstream_cost_usd, spent.llm_cache_saved_usd) == (False, pytest.approx(cost), 0)
    assert (again.from_cache, saved.upstream_cost_usd, saved.llm_cache_saved_usd) == (True, 0, pytest.approx(cost))
    assert (again.text, again.model, saved.llm_calls) == (first.text, first.model, 0)
    assert len(stand_in.requests) == 1

    erasure = pb.DeleteCachedByKeysRequest(org="acme", namespace="team", keys=["k9"], tags=["src:k2"])
    assert (await stub.DeleteCachedByKeys(erasure)).deleted_count == 1
    assert (await stub.DeleteCachedByKeys(erasure)).deleted_count == 0
    assert not (await ask(stub, use))[0].from_cache


async def test_without_a_word_about_it_or_in_a_traffic_class_without_it_nothing_is_cached(
    stub: "pb_grpc.LlmServiceAsyncStub", stand_in: ProviderStandIn
) -> None:
    for use in (None, pb.CacheUse(), pb.CacheUse(traffic_class="people"), pb.CacheUse(enabled=False)):
        await ask(stub, use)
        assert not (await ask(stub, use))[0].from_cache
    assert len(stand_in.requests) == 8
    await ask(stub, pb.CacheUse(traffic_class="bench"))
    assert (await ask(stub, pb.CacheUse(traffic_class="bench")))[0].from_cache


async def test_an_erasure_names_its_organisation_and_namespace(stub: "pb_grpc.LlmServiceAsyncStub") -> None:
    with pytest.raises(InvalidArgument) as caught:
        await stub.DeleteCachedByKeys(pb.DeleteCachedByKeysRequest(keys=["k1"]))
    assert {violation.field for violation in caught.value.fields} == {"org", "namespace"}
