"""The gate of the llm service: what is asked, and in which order."""

from dataclasses import replace

import pytest

from loom_common.attribution import Attribution
from loom_common.auth.directory import FakeDirectory
from loom_common.budget import Budget, FakeSpend
from loom_common.call import Call, Scope, bind
from loom_common.errors import BudgetExhausted, ModelCallsOff, ModelCallUnattributed, ModelPolicyUnread, ReadsLlmFree
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.policy import InferencePolicy
from loom_common.model_calls.reads import FakeReads
from loom_common.model_calls.switch import FakeSwitch
from loom_llm.app.gate import Gate

WRITE = Attribution("acme", feature="memory.set_from_messages")
READ = Attribution("acme", feature="memory.search", read_only=True)


def gate(switch: FakeSwitch, *, reads_llm_free: bool = False) -> Gate:
    return Gate(reads_llm_free=reads_llm_free, model_calls=ModelCallGate(InferencePolicy(), switch, FakeReads()))


async def test_a_call_that_names_nobody_passes_no_gate() -> None:
    with bind(Call()), pytest.raises(ModelCallUnattributed):
        await gate(FakeSwitch()).require()


async def test_an_organisation_that_is_off_or_could_not_be_read_passes_no_gate() -> None:
    switch = FakeSwitch("acme")
    with bind(Call(attribution=WRITE)):
        with pytest.raises(ModelCallsOff):
            await gate(switch).require()
        switch.unread = True
        with pytest.raises(ModelPolicyUnread):
            await gate(switch).require()


async def test_reads_pass_only_where_they_may_have_a_model() -> None:
    with bind(Call(attribution=READ)) as running:
        with pytest.raises(ReadsLlmFree):
            await gate(FakeSwitch(), reads_llm_free=True).require()
        assert running.model_call is None
        await gate(FakeSwitch()).require()
        assert running.model_call is not None
    with bind(Call(attribution=WRITE)):
        await gate(FakeSwitch(), reads_llm_free=True).require()


async def test_a_namespace_that_spent_its_cap_passes_no_gate_and_the_deployments_own_calls_do() -> None:
    spend = FakeSpend()
    scope = Scope("acme", "team")
    spend.usd[scope, "memory.ask"] = 1.0
    model_calls = ModelCallGate(InferencePolicy(), FakeSwitch(), FakeReads())
    budgeted = Gate(reads_llm_free=False, model_calls=model_calls, budget=Budget(FakeDirectory(), spend, 1.0))
    with bind(Call(attribution=replace(WRITE, namespace="team"))), pytest.raises(BudgetExhausted):
        await budgeted.require()
    for namespace in ("other", ""):
        with bind(Call(attribution=replace(WRITE, namespace=namespace))):
            await budgeted.require()
