import asyncio
from collections.abc import Sequence

import pytest

from loom_common.clickhouse import StatementFailed, Table
from loom_common.clickhouse.commit import CommitLimits, GroupCommit
from loom_common.errors import BackendUnavailable, InternalError, LoomError, Overloaded

TABLE = Table.of("t", number="UInt64")
BAD = 666


class Store:
    """Takes what a committer writes; refuses a batch with a bad row, as the engine does, and can be held up."""

    def __init__(self) -> None:
        self.batches: list[list[object]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.failure: LoomError | None = None

    async def write(self, table: Table, rows: Sequence[Sequence[object]]) -> None:
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        numbers = [row[0] for row in rows]
        if BAD in numbers:
            error = InternalError("refused")
            error.__cause__ = StatementFailed(53, "TYPE_MISMATCH")
            raise error
        self.batches.append(numbers)


@pytest.fixture
def store() -> Store:
    return Store()


def _commit(
    store: Store, *, batch_rows: int = 100, waiting_rows: int = 1000, waiting_bytes: int = 1 << 20
) -> GroupCommit:
    return GroupCommit(TABLE, store.write, CommitLimits(batch_rows, waiting_rows, waiting_bytes))


async def _waiting(commit: GroupCommit, *numbers: int) -> "asyncio.Task[None]":
    task = asyncio.create_task(commit.insert([(number,) for number in numbers]))
    await asyncio.sleep(0)  # it joins the queue
    return task


async def test_rows_that_wait_while_an_insert_runs_go_into_the_next_one(store: Store) -> None:
    commit = _commit(store)
    store.open.clear()
    tasks = [await _waiting(commit, number) for number in range(5)]
    store.open.set()
    await asyncio.gather(*tasks)
    assert store.batches == [[0], [1, 2, 3, 4]] or store.batches == [[0, 1, 2, 3, 4]]


async def test_no_caller_is_answered_before_its_rows_are_stored(store: Store) -> None:
    commit = _commit(store)
    store.open.clear()
    task = await _waiting(commit, 1)
    done, _ = await asyncio.wait({task}, timeout=0.02)
    assert not done
    store.open.set()
    await task
    assert store.batches == [[1]]


async def test_a_bad_row_fails_its_own_caller_only(store: Store) -> None:
    commit = _commit(store)
    store.open.clear()
    tasks = [await _waiting(commit, number) for number in (0, 1, BAD, 3)]
    store.open.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), InternalError, type(None)]
    assert sorted(str(number) for batch in store.batches for number in batch) == ["0", "1", "3"]


async def test_an_unknown_outcome_is_not_tried_again(store: Store) -> None:
    commit = _commit(store)
    store.open.clear()
    tasks = [await _waiting(commit, number) for number in range(3)]
    store.failure = BackendUnavailable("gone")
    store.open.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [BackendUnavailable] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
    assert store.batches == []


async def test_a_batch_is_bounded_and_a_callers_rows_stay_together(store: Store) -> None:
    commit = _commit(store, batch_rows=4)
    store.open.clear()
    tasks = [await _waiting(commit, 0), await _waiting(commit, *range(10, 13)), await _waiting(commit, *range(20, 26))]
    store.open.set()
    await asyncio.gather(*tasks)
    assert [10, 11, 12] in [batch[-3:] for batch in store.batches]
    assert store.batches[-1] == list(range(20, 26))


async def test_too_many_waiting_rows_are_refused(store: Store) -> None:
    commit = _commit(store, batch_rows=1, waiting_rows=2)
    store.open.clear()
    tasks = [await _waiting(commit, number) for number in range(3)]
    with pytest.raises(Overloaded):
        await commit.insert([(9,), (10,), (11,)])
    store.open.set()
    await asyncio.gather(*tasks)


async def test_a_caller_that_left_before_its_insert_began_stores_nothing(store: Store) -> None:
    commit = _commit(store)
    store.open.clear()
    first = await _waiting(commit, 1)
    await asyncio.sleep(0)
    gone = await _waiting(commit, 2)
    gone.cancel()
    await asyncio.wait({gone})
    store.open.set()
    await first
    await commit.close()
    assert store.batches == [[1]]


async def test_closing_drains_and_then_refuses(store: Store) -> None:
    commit = _commit(store, batch_rows=1)
    store.open.clear()
    tasks = [await _waiting(commit, number) for number in range(4)]
    closing = asyncio.create_task(commit.close())
    store.open.set()
    await closing
    assert all(task.done() for task in tasks)
    assert store.batches == [[0], [1], [2], [3]]
    with pytest.raises(BackendUnavailable):
        await commit.insert([(5,)])


async def test_a_row_of_the_wrong_width_is_the_callers_bug(store: Store) -> None:
    with pytest.raises(ValueError):
        await _commit(store).insert([(1, 2)])


async def test_no_rows_are_no_insert(store: Store) -> None:
    await _commit(store).insert([])
    assert store.batches == []


@pytest.mark.parametrize(
    "value", ["x" * 65_536, b"x" * 65_536, [0.5] * 2_800, ["x" * 32_768] * 2, {"key": "x" * 65_536}, ("y" * 65_536,)]
)
async def test_writers_are_refused_once_waiting_rows_take_too_much_memory(store: Store, value: object) -> None:
    commit = _commit(store, waiting_bytes=10 * 65_536)
    store.open.clear()
    writers = [await _waiting(commit, 0)]
    for _ in range(30):
        writer = asyncio.create_task(commit.insert([(value,)]))
        await asyncio.sleep(0)
        if writer.done():
            break
        writers.append(writer)
    with pytest.raises(Overloaded):
        await writer
    assert 5 <= len(writers) <= 11
    store.open.set()
    await asyncio.gather(*writers)
    # There is room again.
    await commit.insert([(value,)])


async def test_one_call_larger_than_the_bound_is_stored_alone(store: Store) -> None:
    await _commit(store, waiting_bytes=1).insert([(number,) for number in range(50)])
    assert [len(batch) for batch in store.batches] == [50]
