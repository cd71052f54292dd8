"""The llm service on a real server, with a stand-in for its provider: RPCs, gates, failures, usage, status."""

from pathlib import Path

import grpc.aio
import pytest
from structlog.testing import capture_logs
from support.grpc import bad_request, error_info, reason_of, retry_info
from support.llm_service import FOR_ACME, Rig
from support.providers import TEST_KEY, Fault, Reply

from loom.common.v1 import status_pb2, status_pb2_grpc
from loom.llm.v1 import llm_pb2 as pb
from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_common.attribution import ATTRIBUTION_KEY, Attribution
from loom_common.call import Call, bind
from loom_common.errors import ProviderFailed
from loom_llm.wiring import open_service

READ = Attribution(org="acme", feature="memory.search", read_only=True)


@pytest.mark.parametrize(
    ("variables", "provider", "model"),
    [
        ({"OPENAI_API_KEY": TEST_KEY}, "openai", "gpt-6-luna"),
        ({"ANTHROPIC_API_KEY": TEST_KEY}, "anthropic", "claude-haiku-4-5"),
    ],
)
async def test_a_prompt_is_completed_and_what_it_spent_comes_back(
    rig: Rig, variables: dict[str, str], provider: str, model: str
) -> None:
    with capture_logs() as logs:
        async with (
            open_service(rig.settings(**variables), rig.clickhouse) as server,
            rig.deployment.channel(server.address, "memory") as channel,
        ):
            stub = pb_grpc.LlmServiceStub(channel)
            with bind(Call(attribution=FOR_ACME)) as call:
                answer = await stub.Complete(pb.CompleteRequest(system="be brief", user="hi", max_tokens=9))
            served = await stub.GetServedModel(pb.GetServedModelRequest())
            status = await status_pb2_grpc.StatusServiceStub(channel).GetStatus(status_pb2.GetStatusRequest())
    assert (answer.text, answer.provider, answer.model) == ("echo: hi", provider, model)
    assert (answer.input_tokens, answer.output_tokens, answer.from_cache) == (11, 7, False)
    assert (call.usage.input_tokens, call.usage.output_tokens, call.usage.llm_calls) == (11, 7, 1)
    assert (served.provider, served.model, served.fake, served.provider_source) == (provider, model, False, "key")
    assert 9 in rig.stand_in.requests[0].json.values()
    facts = {"provider": provider, "model": model, "llm_provider_source": "key", "llm_provider_inferred": "true"}
    assert dict(status.facts) == facts
    inferred = {"event": "llm_provider_inferred", "log_level": "info"}
    assert [line for line in logs if line["event"] == "llm_provider_inferred"] == [
        {**inferred, "provider": provider, "model": model, "source": "key"}
    ]


async def test_without_a_key_the_fake_answers_and_says_so(rig: Rig) -> None:
    async with (
        open_service(rig.settings(LOOM_LLM_PROVIDER="openai"), rig.clickhouse) as server,
        grpc.aio.insecure_channel(server.address) as raw,
    ):
        stub = pb_grpc.LlmServiceStub(raw)
        answer = await stub.Complete(pb.CompleteRequest(user="hi"), metadata=rig.metadata())
        served = await stub.GetServedModel(pb.GetServedModelRequest(), metadata=rig.metadata())
        status = await status_pb2_grpc.StatusServiceStub(raw).GetStatus(
            status_pb2.GetStatusRequest(), metadata=rig.metadata()
        )
    assert answer.text == "[fake-echo] hi"
    assert (served.provider, served.model, served.fake, served.provider_source) == (
        "fake",
        "fake-echo-1",
        True,
        "explicit",
    )
    assert {"fake_llm", "llm_key_missing"} <= {problem.code for problem in status.problems}
    assert rig.stand_in.requests == []


async def test_a_provider_that_fails_is_tried_as_often_as_set_and_its_words_stay_inside(rig: Rig) -> None:
    rig.stand_in.script(*[Reply.error(529, f"key {TEST_KEY} is overloaded")] * 3)
    settings = rig.settings(OPENAI_API_KEY=TEST_KEY, LOOM_LLM_RETRY_ATTEMPTS=3)
    async with (
        open_service(settings, rig.clickhouse) as server,
        grpc.aio.insecure_channel(server.address) as raw,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pb_grpc.LlmServiceStub(raw).Complete(pb.CompleteRequest(user="hi"), metadata=rig.metadata())
        status = await status_pb2_grpc.StatusServiceStub(raw).GetStatus(
            status_pb2.GetStatusRequest(), metadata=rig.metadata()
        )
    info = error_info(caught.value)
    assert info.reason == "PROVIDER_FAILED"
    assert dict(info.metadata).items() >= {"provider": "openai", "status": "529", "attempts": "3"}.items()
    shown = f"{caught.value.details()} {caught.value.trailing_metadata()}"
    assert TEST_KEY not in shown
    assert "overloaded" not in shown
    assert len(rig.stand_in.requests) == 3
    assert "provider_failing:openai" in {problem.code for problem in status.problems}


async def test_a_provider_that_asks_for_a_long_wait_is_not_asked_again_and_the_wait_is_told(rig: Rig) -> None:
    rig.stand_in.script(Reply.error(429, retry_after="90"))
    async with (
        open_service(rig.settings(OPENAI_API_KEY=TEST_KEY), rig.clickhouse) as server,
        grpc.aio.insecure_channel(server.address) as raw,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pb_grpc.LlmServiceStub(raw).Complete(pb.CompleteRequest(user="hi"), metadata=rig.metadata())
    assert reason_of(caught.value) == "PROVIDER_FAILED"
    assert retry_info(caught.value).retry_delay.seconds == 90
    assert len(rig.stand_in.requests) == 1


async def test_a_hung_provider_is_cut_at_the_total_deadline(rig: Rig) -> None:
    rig.stand_in.script(Reply(fault=Fault.HANG))
    settings = rig.settings(ANTHROPIC_API_KEY=TEST_KEY, LOOM_LLM_TOTAL_DEADLINE_S=0.2)
    async with (
        open_service(settings, rig.clickhouse) as server,
        rig.deployment.channel(server.address, "memory") as channel,
    ):
        with bind(Call(attribution=FOR_ACME)), pytest.raises(ProviderFailed) as caught:
            await pb_grpc.LlmServiceStub(channel).Complete(pb.CompleteRequest(user="hi"))
    assert caught.value.detail["kind"] == "timeout"


async def test_a_callers_deadline_ends_a_hung_call(rig: Rig) -> None:
    rig.stand_in.script(Reply(fault=Fault.HANG))
    async with (
        open_service(rig.settings(OPENAI_API_KEY=TEST_KEY), rig.clickhouse) as server,
        grpc.aio.insecure_channel(server.address) as raw,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pb_grpc.LlmServiceStub(raw).Complete(
                pb.CompleteRequest(user="hi"), metadata=rig.metadata(), timeout=0.3
            )
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    ("attribution", "reads_llm_free", "reason"),
    [(READ, True, "READS_LLM_FREE"), (None, False, "MODEL_CALL_UNATTRIBUTED")],
)
async def test_a_gate_refuses_before_the_provider_is_called(
    rig: Rig, attribution: Attribution | None, reads_llm_free: bool, reason: str
) -> None:
    settings = rig.settings(OPENAI_API_KEY=TEST_KEY, LOOM_READS_LLM_FREE=reads_llm_free)
    async with (
        open_service(settings, rig.clickhouse) as server,
        grpc.aio.insecure_channel(server.address) as raw,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pb_grpc.LlmServiceStub(raw).Complete(
                pb.CompleteRequest(user="hi"), metadata=rig.metadata(attribution)
            )
    assert reason_of(caught.value) == reason
    assert rig.stand_in.requests == []


async def test_only_services_may_call_and_only_within_the_rules(rig: Rig, tmp_path: Path) -> None:
    async with (
        open_service(rig.settings(), rig.clickhouse) as server,
        grpc.aio.insecure_channel(server.address) as raw,
    ):
        stub = pb_grpc.LlmServiceStub(raw)
        for metadata in ((), (("x-loom-service", "forged"),), ((ATTRIBUTION_KEY, FOR_ACME.to_bytes()),)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Complete(pb.CompleteRequest(user="hi"), metadata=metadata)
            assert caught.value.code() in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
        for request, field in (
            (pb.CompleteRequest(), "user"),
            (pb.CompleteRequest(user="hi", max_tokens=0), "max_tokens"),
            (pb.CompleteRequest(user="hi", response_format="xml"), "response_format"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Complete(request, metadata=rig.metadata())
            assert reason_of(caught.value) == "INVALID_ARGUMENT"
            assert [violation.field for violation in bad_request(caught.value).field_violations] == [field]
