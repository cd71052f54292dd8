"""Remembering and asking over gRPC: memory, the llm service as it runs, and a stand-in for its provider."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest
from support.grpc import Deployment, bearer, reason_of
from support.llm_service import Rig
from support.memory import MemoryHarness, memory_over
from support.providers import ProviderStandIn, Reply, chat_completion
from support.watching import telling_identity

from loom.memory.v1 import ask_pb2, ask_pb2_grpc, extraction_pb2, extraction_pb2_grpc, workers_pb2, workers_pb2_grpc
from loom_common.auth.claims import ReadScope
from loom_common.auth.service_credentials import ServiceKey
from loom_common.channel import open_channel
from loom_common.clickhouse import ClickHouse
from loom_llm.wiring import open_service as open_llm
from loom_memory.app.llm_grpc import GrpcLlm
from loom_memory.settings import MemorySettings


@dataclass
class Served:
    """Memory over gRPC."""

    deployment: Deployment
    harness: MemoryHarness
    stand_in: ProviderStandIn
    channel: grpc.aio.Channel

    def __post_init__(self) -> None:
        self.ask: ask_pb2_grpc.AskServiceAsyncStub = ask_pb2_grpc.AskServiceStub(self.channel)
        self.extraction: extraction_pb2_grpc.ExtractionServiceAsyncStub = extraction_pb2_grpc.ExtractionServiceStub(
            self.channel
        )
        self.workers: workers_pb2_grpc.WorkersServiceAsyncStub = workers_pb2_grpc.WorkersServiceStub(self.channel)
        self.writer = bearer(self.deployment.token("team:writer"))

    def answers(self, *texts: str) -> None:
        self.stand_in.script(*(Reply(body=chat_completion(text)) for text in texts))

    async def tell(self, text: str, **more: object) -> extraction_pb2.SetMemoriesFromMessagesResponse:
        message = extraction_pb2.ConversationMessage(role="user", content=text, speaker="Ann", said_at="2023-05-10")
        request = extraction_pb2.SetMemoriesFromMessagesRequest(messages=[message], **more)  # type: ignore[arg-type]
        return await self.extraction.SetMemoriesFromMessages(request, metadata=self.writer)


def fact(text: str, **more: object) -> str:
    return json.dumps({"facts": [{"fact": text, "subject": "Ann", "message": 1, **more}]})


@pytest.fixture
async def served(clickhouse: ClickHouse, service_keys: Path) -> AsyncIterator[Served]:
    deployment = Deployment(service_keys)
    async with ProviderStandIn().running() as stand_in, telling_identity(deployment) as identity:
        rig = Rig(deployment, clickhouse, stand_in, identity)
        settings = rig.settings(OPENAI_API_KEY="sk-test", LOOM_LLM_RETRY_ATTEMPTS=2)
        key = ServiceKey.load(service_keys / "memory.jwk")
        async with open_llm(settings, clickhouse) as llm, open_channel(llm.address, key) as to_llm:
            harness = await memory_over(
                clickhouse,
                directory=deployment.directory,
                llm=GrpcLlm(to_llm),
                settings=MemorySettings(LOOM_MEMORY_EXTRACT_VERIFY_MODELS=""),
            )
            async with (
                deployment.serving(*harness.parts.services()) as server,
                grpc.aio.insecure_channel(server.address) as channel,
            ):
                yield Served(deployment, harness, stand_in, channel)
            await harness.parts.workers.close()
            await harness.parts.deletions.close()


async def test_a_conversation_is_remembered_and_answers_from_it_are_cited(served: Served) -> None:
    # The provider is busy at first; its own wait is kept, and the caller never hears of it.
    served.stand_in.script(Reply.error(429, retry_after="0"))
    served.answers(fact("Ann moved to Rome", when="yesterday", kind="event"))
    told = await served.tell("I moved to Rome yesterday, and I like it here")
    assert (told.state, told.extracted_count, told.stored_count, told.reason) == ("done", 1, 1, "")
    (memory,) = told.results
    assert (memory.value, memory.kind, memory.version) == ("Ann moved to Rome", "event", 1)
    again = await served.tell("I moved to Rome yesterday, and I like it here")
    assert (again.stored_count, again.reason, len(served.stand_in.requests)) == (0, "already_done", 2)

    question = ask_pb2.AskMemoriesRequest(question="Tell me of the move to Rome")
    served.answers('{"supported": true, "answer": "She moved to Rome in May 2023 [m1]."}')
    answered = await served.ask.AskMemories(question, metadata=served.writer)
    cited = f"[memory:{memory.key}@v1]"
    assert answered.answer == f"She moved to Rome in May 2023 {cited}."
    assert [citation.text for citation in answered.citations] == [cited]
    assert answered.evidence[0].memory.event_time == "2023-05-09T00:00:00.000Z"
    kept = await served.ask.AskMemories(question, metadata=served.writer)
    assert (kept.answer, kept.from_cache, len(served.stand_in.requests)) == (answered.answer, True, 3)

    dated = await served.ask.AskMemories(
        ask_pb2.AskMemoriesRequest(question="When did Ann move to Rome?"), metadata=served.writer
    )
    assert (dated.route, dated.answer) == ("date", f"2023-05-09: Ann moved to Rome {cited}")
    nothing = await served.ask.AskMemories(
        ask_pb2.AskMemoriesRequest(question="quantum chromodynamics lattice"), metadata=served.writer
    )
    assert (nothing.answer, bool(nothing.abstain_code)) == ("", True)
    brief = await served.ask.BriefMemories(
        ask_pb2.BriefMemoriesRequest(topic="move to Rome", allow_synthesis=False), metadata=served.writer
    )
    assert brief.sections[0].lines == [f"2023-05-09: Ann moved to Rome {cited}"]


async def test_a_provider_that_fails_is_told_of_and_a_deferred_conversation_waits_for_it(served: Served) -> None:
    served.stand_in.script(*(Reply.error(500) for _ in range(4)))
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await served.tell("I moved to Rome yesterday, and I like it here")
    assert reason_of(failed.value) == "PROVIDER_FAILED"
    later = await served.tell("My sister has moved to Oslo, and I miss her", deferred=True)
    assert (later.state, later.reason) == ("pending", "deferred")
    assert served.harness.parts.background is not None
    await served.harness.parts.background.leading[0].turn()
    request = extraction_pb2.GetExtractionRequest(extraction_id=later.extraction_id)
    state = await served.extraction.GetExtraction(request, metadata=served.writer)
    assert (state.found, state.state, state.attempt_count, state.reason) == (True, "pending", 1, "PROVIDER_FAILED")
    assert state.due_at
    own = bearer(served.deployment.token("team:writer", read_scope=ReadScope.OWN_USER, user_id="u1"))
    assert not (await served.extraction.GetExtraction(request, metadata=own)).found


async def test_what_works_in_the_background_is_shown_to_the_operator_alone(served: Served) -> None:
    operator = (served.deployment.credential("operator"),)
    status = await served.workers.ListWorkers(workers_pb2.ListWorkersRequest(), metadata=operator)
    names = {worker.name: worker for worker in status.workers}
    assert {"extraction_worker", "entity_extractor", "embedding_worker"} <= names.keys()
    assert (status.extraction_queue.pending_count, status.extraction_queue.dead_count) == (0, 0)
    dead = await served.workers.ListDeadWork(workers_pb2.ListDeadWorkRequest(), metadata=operator)
    assert list(dead.work) == []
    retried = await served.workers.RetryDeadWork(workers_pb2.RetryDeadWorkRequest(), metadata=operator)
    assert retried.retried_count == 0
    for caller in (served.writer, (served.deployment.credential("insights"),)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.workers.ListWorkers(workers_pb2.ListWorkersRequest(), metadata=caller)
        assert reason_of(refused.value) == "AUTH_INSUFFICIENT"
