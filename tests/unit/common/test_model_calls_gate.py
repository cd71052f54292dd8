"""The gate before calls to models: who may pass, and which rows one call may hold."""

import asyncio
from collections.abc import Sequence

import pytest

from loom_common.attribution import Attribution, Kind
from loom_common.call import Call, bind, current
from loom_common.clock import FakeClock
from loom_common.errors import (
    BackendUnavailable,
    LoomError,
    ModelCallDeferred,
    ModelCallRefused,
    ModelCallsOff,
    ModelCallUnattributed,
    ModelPolicyUnread,
    ProviderFailed,
)
from loom_common.features import Feature
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.headers import parse_identity_headers
from loom_common.model_calls.held import GROUP_HOLDS, HOLDS, IdentityUnread, SwitchUnread, holds_group
from loom_common.model_calls.jobs import for_org, system
from loom_common.model_calls.policy import InferencePolicy
from loom_common.model_calls.reads import FakeReads
from loom_common.model_calls.switch import FakeSwitch, FollowedSwitch, SwitchCopy
from loom_common.provenance import principal_of

NAMED = InferencePolicy(customer_header="x-customer")
AGENTS = InferencePolicy(
    identity_headers=parse_identity_headers('{"x-agent":"{agent}"}'), gateway_hosts=frozenset({"gateway"})
)


def gate(
    policy: InferencePolicy | None = None, switch: FakeSwitch | None = None, reads: FakeReads | None = None
) -> ModelCallGate:
    return ModelCallGate(policy or InferencePolicy(), switch or FakeSwitch(), reads or FakeReads(), FakeClock())


async def refusal_of(made: ModelCallGate, attribution: Attribution | None) -> LoomError | None:
    with bind(Call(op="memory.search", attribution=attribution)):
        try:
            await made.require()
        except LoomError as error:
            return error
    return None


async def grouped(made: ModelCallGate, rows: Sequence[Attribution]) -> list[list[Attribution]]:
    return [group async for _, group in made.groups(rows, lambda row: row)]


async def test_a_call_that_names_nobody_is_refused_before_anything_else() -> None:
    switch = FakeSwitch()
    switch.unread = True
    for nobody in (None, Attribution(""), Attribution("", "home", "ann@example.org", kind=Kind.JOB)):
        assert isinstance(await refusal_of(gate(switch=switch), nobody), ModelCallUnattributed)
    with pytest.raises(ModelCallUnattributed):  # outside of any call
        await gate().require()


async def test_a_call_that_passes_carries_its_headers_from_there_on() -> None:
    with bind(Call(attribution=Attribution("acme", feature="memory.set"))) as running:
        await gate(NAMED).require()
        assert running.model_call is not None
        assert running.model_call.customer == (("x-customer", "acme"),)


async def test_an_organisation_that_is_switched_off_makes_no_call_and_others_do() -> None:
    made = gate(switch=FakeSwitch("acme"))
    refused = await refusal_of(made, Attribution("acme"))
    assert isinstance(refused, ModelCallsOff)
    assert refused.detail == {"org": "acme"}
    assert isinstance(await refusal_of(made, Attribution("acme", kind=Kind.JOB)), ModelCallsOff)
    assert await refusal_of(made, Attribution("globex")) is None
    assert await refusal_of(made, Attribution("", kind=Kind.SYSTEM)) is None


async def test_a_switch_that_could_not_be_read_refuses_every_organisation_and_not_the_deployment_itself() -> None:
    switch = FakeSwitch()
    switch.unread = True
    refused = await refusal_of(gate(switch=switch), Attribution("acme"))
    assert isinstance(refused, SwitchUnread)
    assert refused.retry_after_s
    assert await refusal_of(gate(switch=switch), Attribution("", kind=Kind.SYSTEM)) is None


async def test_a_copy_that_is_too_old_is_waited_for_and_then_not_trusted() -> None:
    clock = FakeClock()
    copy = SwitchCopy(clock)
    switch = FollowedSwitch(copy, 60, wait_s=0.01)
    with pytest.raises(SwitchUnread):
        await switch.require_on("acme")
    copy.replace(["globex"], age_s=59)
    await switch.require_on("acme")
    with pytest.raises(ModelCallsOff):
        await switch.require_on("globex")
    clock.advance(2)
    with pytest.raises(SwitchUnread):
        await switch.require_on("acme")

    patient = FollowedSwitch(copy, 60, wait_s=5)
    waiting = asyncio.create_task(patient.require_on("acme"))
    await asyncio.sleep(0)
    copy.change(["acme"], ["globex"], age_s=0)
    with pytest.raises(ModelCallsOff):
        await waiting
    assert switch.off() == {"acme"}


async def test_a_job_whose_identity_could_not_be_read_waits_half_a_minute_and_a_request_less() -> None:
    reads = FakeReads(failure=BackendUnavailable("gone"))
    job = await refusal_of(gate(AGENTS, reads=reads), Attribution("acme", "home", kind=Kind.JOB))
    assert isinstance(job, IdentityUnread)
    assert job.retry_after_s == 30
    emails = InferencePolicy(identity_headers=parse_identity_headers('{"x-email":"{email}"}'))
    request = await refusal_of(gate(emails, reads=reads), Attribution("acme", subject="ann@example.org"))
    assert isinstance(request, IdentityUnread)
    assert request.retry_after_s == 1


async def test_a_command_that_names_no_namespace_is_refused_while_the_headers_name_the_agent() -> None:
    command = Attribution("acme", kind=Kind.JOB)
    assert isinstance(await refusal_of(gate(AGENTS), command), ModelCallUnattributed)
    assert await refusal_of(gate(NAMED), command) is None
    assert await refusal_of(gate(AGENTS), Attribution("acme", "shared", kind=Kind.JOB)) is None


async def test_rows_of_several_customers_or_identities_never_share_a_call() -> None:
    def row(org: str, namespace: str, subject: str = "") -> Attribution:
        return Attribution(org, namespace, subject, kind=Kind.JOB)

    one, two, other = row("acme", "a"), row("acme", "b"), row("globex", "a")
    assert await grouped(gate(NAMED), [one, other, two]) == [[one, two], [other]]

    reads = FakeReads(owners={("acme", "a"): "sa:okta:x", ("acme", "b"): "sa:okta:y", ("globex", "a"): "sa:okta:x"})
    written = row("acme", "shared", "sa:okta:x")
    # One agent's rows in several namespaces share a call.
    assert await grouped(gate(AGENTS, reads=reads), [one, two, other, written]) == [[one, written], [two], [other]]


async def test_without_headers_several_organisations_are_one_call_but_for_those_that_are_off() -> None:
    rows = [Attribution(org, "n", kind=Kind.JOB) for org in ("acme", "globex", "initech", "globex")]
    assert await grouped(gate(), rows) == [rows]
    off = gate(switch=FakeSwitch("globex"))
    assert await grouped(off, rows) == [[rows[0], rows[2]], [rows[1], rows[3]]]
    assert isinstance(await refusal_of(off, rows[1]), ModelCallsOff)


async def test_a_row_whose_identity_cannot_be_read_is_a_group_of_its_own() -> None:
    reads = FakeReads(failure=BackendUnavailable("gone"))
    known = Attribution("acme", "a", "sa:okta:x", kind=Kind.JOB)
    unread = Attribution("acme", "b", kind=Kind.JOB)
    assert await grouped(gate(AGENTS, reads=reads), [known, unread, known]) == [[known, known], [unread]]


async def test_a_worker_is_for_its_row_and_never_for_what_ran_before() -> None:
    before = Call(op="memory.set", attribution=Attribution("globex", subject="sa:other"), run_id="r1", token="t")
    with bind(before), for_org("acme", Feature.EMBEDDING_WORKER, namespace="n", subject="ann@x.org") as job:
        assert job.attribution == Attribution("acme", "n", "ann@x.org", feature="embedding_worker", kind=Kind.JOB)
        assert (job.token, job.run_id, job.claims) == (None, None, None)
        job.usage.llm_calls += 1
        with system("system.probe"):
            assert current().attribution == Attribution("", feature="system.probe", kind=Kind.SYSTEM)
    assert before.usage.llm_calls == 1


@pytest.mark.parametrize(
    ("actor", "subject"),
    [
        ("human:ann@example.org", "ann@example.org"),
        ("process:sa:okta:planner", "sa:okta:planner"),
        ("process:extraction-worker", ""),
        ("process:cli:reembed", ""),
        ("process:memory", ""),
        ("process:client", "client"),
        ("", ""),
        ("ann@example.org", ""),
    ],
)
def test_an_actor_stands_for_a_principal_unless_it_is_a_pipelines(actor: str, subject: str) -> None:
    assert principal_of(actor) == subject


def test_a_hold_of_one_group_is_told_from_a_hold_of_all_also_over_the_wire() -> None:
    over_the_wire = ModelPolicyUnread("x", detail=IdentityUnread().detail)
    held = [ModelCallsOff("x"), ModelCallRefused("x"), ModelCallDeferred("x"), IdentityUnread(), over_the_wire]
    assert all(holds_group(error) and isinstance(error, HOLDS) for error in held)
    assert isinstance(SwitchUnread(), HOLDS)
    assert not isinstance(SwitchUnread(), GROUP_HOLDS)
    assert not holds_group(SwitchUnread())
    assert not holds_group(ProviderFailed("x"))
