"""Daily caps of what calls to models may cost."""

from datetime import UTC, datetime, timedelta

import grpc.aio
import pytest

from loom.insights.v1 import ledger_pb2, ledger_pb2_grpc
from loom_common.auth.directory import FakeDirectory, NamespaceInfo
from loom_common.budget import Budget, FakeSpend, GrpcSpend
from loom_common.call import Scope
from loom_common.clock import FakeClock
from loom_common.errors import BackendUnavailable, BudgetExhausted

TEAM = Scope("acme", "team")
NOON = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)


class Rig:
    def __init__(self, own: float | None = None, default: float | None = 1.0) -> None:
        self.spend = FakeSpend()
        directory = FakeDirectory([NamespaceInfo("acme", "team", daily_cost_cap_usd=own)])
        self.budget = Budget(directory, self.spend, default, FakeClock(NOON))


async def test_a_namespace_within_its_cap_may_spend_and_one_at_it_is_told_when_the_day_ends() -> None:
    rig = Rig()
    await rig.budget.require_within(TEAM)
    rig.spend.usd[TEAM, "memory.ask"] = 0.99
    await rig.budget.require_within(TEAM)
    rig.spend.usd[TEAM, "assistant.ask"] = 0.01
    with pytest.raises(BudgetExhausted) as caught:
        await rig.budget.require_within(TEAM)
    assert caught.value.retry_after_s == 2 * 3600
    await rig.budget.require_within(Scope("acme", "other"))


@pytest.mark.parametrize(
    ("own", "default", "over"),
    [(None, 1.0, False), (0.5, 1.0, True), (2.0, 0.1, False), (None, None, False), (0.0, None, True)],
)
async def test_a_namespaces_own_cap_comes_before_the_deployments(
    own: float | None, default: float | None, over: bool
) -> None:
    rig = Rig(own, default)
    rig.spend.usd[TEAM, "memory.ask"] = 0.75
    assert await rig.budget.operation_over_share(TEAM) is over


async def test_an_operation_is_held_to_its_share_of_the_cap() -> None:
    rig = Rig()
    rig.spend.usd[TEAM, "assistant.ask"] = 0.5
    rig.spend.usd[TEAM, "memory.ask"] = 0.4
    assert await rig.budget.operation_over_share(TEAM, 0.5, "assistant.ask")
    assert not await rig.budget.operation_over_share(TEAM, 0.5, "memory.ask")


async def test_spend_that_cannot_be_read_is_not_spent_but_refused_for_a_second() -> None:
    rig = Rig()
    rig.spend.error = BackendUnavailable("away")
    with pytest.raises(BackendUnavailable) as caught:
        await rig.budget.require_within(TEAM)
    assert caught.value.retry_after_s == 1.0
    without = Rig(default=None)
    without.spend.error = BackendUnavailable("away")
    await without.budget.require_within(TEAM)


class Ledger(ledger_pb2_grpc.LedgerServiceServicer):
    def __init__(self) -> None:
        self.asked = 0

    async def GetSpendToday(
        self, _request: ledger_pb2.GetSpendTodayRequest, _context: object
    ) -> ledger_pb2.GetSpendTodayResponse:
        self.asked += 1
        return ledger_pb2.GetSpendTodayResponse(spent_usd=float(self.asked))


async def test_spend_is_kept_for_two_seconds_and_never_into_the_next_day() -> None:
    ledger, server = Ledger(), grpc.aio.server()
    ledger_pb2_grpc.add_LedgerServiceServicer_to_server(ledger, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    clock = FakeClock(NOON)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            spend = GrpcSpend(channel, clock)
            assert [await spend.today_usd(TEAM) for _ in range(2)] == [1.0, 1.0]
            assert await spend.today_usd(TEAM, "memory.ask") == 2.0
            clock.advance(2.1)
            assert await spend.today_usd(TEAM) == 3.0
            clock.set(clock.now() + timedelta(days=1))
            assert await spend.today_usd(TEAM) == 4.0
    finally:
        await server.stop(None)
