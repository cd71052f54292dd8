"""Erasures: everything of a user or of a text goes, from rows and from files, and nobody else loses anything."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
import pytest_asyncio
from support.bulk import BulkHarness, bulk_over

from loom_common.clickhouse.embedded import EmbeddedClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clickhouse.settings import ClickHouseSettings
from loom_common.erasure import Counted, Subject
from loom_common.errors import BackendUnavailable, InvalidArgument
from loom_memory.app.erasure.saga import ErasureSaga
from loom_memory.domain.memory import Identity
from loom_memory.store.erasures import FINISHED, RUNNING, Receipt

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN = ("memory", "memory_versions", "memory_embeddings")
DERIVED = {
    "memory_signals": "memory_key, user_id, session_id, signal, recorded_at",
    "memory_exposures": "memory_key, user_id, session_id, op, shown_at",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hurried(clickhouse_engine: EmbeddedEngine) -> Callable[[], BulkHarness]:
    ch = EmbeddedClickHouse(clickhouse_engine, "erasures", ClickHouseSettings(pool_size=2))
    await ch.start()
    bulk = await bulk_over(ch)
    await bulk.hurry_files()
    yield bulk.fresh
    await ch.command("DROP DATABASE erasures SYNC")
    await ch.close()


@pytest.fixture
def bulk(hurried: Callable[[], BulkHarness]) -> BulkHarness:
    return hurried()


class Peer:
    """Another service, which notes what it is asked to erase."""

    name = "llm"

    def __init__(self) -> None:
        self.erased: list[Subject] = []
        self.failure: BackendUnavailable | None = None
        self.left = 0

    async def census(self, subject: Subject | None, rewritten_at: datetime | None = None) -> Sequence[Counted]:
        """See `ErasurePeer.census`."""
        left = self.left if subject is not None and rewritten_at is None else 0
        return [Counted("llm_response_cache", "", left), Counted("claims", "names of locks", 0)]

    async def erase(self, subject: Subject, table: str) -> int:
        """See `ErasurePeer.erase`."""
        if self.failure is not None:
            raise self.failure
        self.erased.append(subject)
        self.left = 0
        return 0


async def fill(bulk: BulkHarness) -> None:
    """Stores two users' memories of the same keys, with versions and derived rows, and the same elsewhere."""
    for scope in (bulk.scope, bulk.other, bulk.foreign):
        for user in ("ana", "ben"):
            await bulk.set("food", f"{user} ate xyzzyold bread", user_id=user, scope=scope)
            await bulk.set("food", f"{user} eats xyzzynew rice", user_id=user, scope=scope, tags=("meal",))
            await bulk.set("deleted", f"{user} left", user_id=user, session_id="s", scope=scope)
    for table, columns in DERIVED.items():
        target = f"{table} (org, namespace, {columns})"
        read = "SELECT org, namespace, memory_key, user_id, session_id, 'x', now64(3) - 1 FROM memory"
        await bulk.ch.command(f"INSERT INTO {target} {read} WHERE org = '{bulk.scope.org}'")


async def left(bulk: BulkHarness, user: str, where: str) -> int:
    counts = [await bulk.count(table, f"{where} AND user_id = '{user}'") for table in (*OWN, *DERIVED)]
    return sum(counts)


async def finished(bulk: BulkHarness, begun: Receipt) -> Receipt:
    await bulk.finish_erasures()
    receipt = await bulk.parts.erasures.get(begun.org, begun.erasure_id)
    assert receipt is not None
    assert receipt.state == FINISHED
    assert not [one for one in receipt.remaining if one.count]
    return receipt


async def test_a_user_is_erased_to_the_last_byte_and_another_keeps_everything(
    bulk: BulkHarness, clickhouse_engine: EmbeddedEngine
) -> None:
    await fill(bulk)
    secret = f"plugh{bulk.scope.org}"
    await bulk.set("a", f"{secret} " * 3, user_id="ana", tags=(secret,), source=secret, speaker=secret)
    await bulk.set("b", f"kept{secret}", user_id="ben")
    assert holds(clickhouse_engine, secret)
    here = f"org = '{bulk.scope.org}' AND namespace = '{bulk.scope.namespace}'"
    before = await left(bulk, "ben", here), await left(bulk, "ana", f"org = '{bulk.foreign.org}'")
    begun = await bulk.parts.desk.erase_user(bulk.scope, "ana", "human:admin", whole_org=False)
    assert (await bulk.parts.desk.erase_user(bulk.scope, "ana", "human:x", whole_org=False)) == begun
    # A worker that read a memory before stores after that what it names.
    named = f"'{bulk.scope.org}', '{bulk.scope.namespace}', 'ana', 'e', 'Late', {2**63}"
    await bulk.ch.command(f"INSERT INTO entities (org, namespace, user_id, entity_id, name, version) SELECT {named}")
    receipt = await finished(bulk, begun)
    assert {one.table for one in receipt.remaining if one.holds_content} >= {*OWN, *DERIVED, "search_traces"}
    assert await left(bulk, "ana", here) == 0
    assert await bulk.count("entities", f"{here} AND user_id = 'ana'") == 0
    assert await left(bulk, "ben", here) == before[0]
    assert await left(bulk, "ana", f"org = '{bulk.foreign.org}'") == before[1]
    assert await bulk.get("food", "ana") is None
    assert await bulk.history("food", "ana") == []
    assert [memory.content.value for memory in await bulk.history("food", "ben")] == [
        "ben eats xyzzynew rice",
        "ben ate xyzzyold bread",
    ]
    assert await bulk.get("food", "ana", scope=bulk.other) is not None
    assert await bulk.count("erasure_work", f"org = '{begun.org}'") == 0
    kept = await bulk.ch.query("SELECT * FROM erasure_receipts WHERE org = {org:String}", {"org": begun.org})
    assert "'ana'" not in str(kept.rows)
    assert not holds(clickhouse_engine, f" {secret}")
    assert holds(clickhouse_engine, f"kept{secret}")


async def test_a_user_is_erased_from_the_whole_organisation_but_for_what_is_written_meanwhile(
    bulk: BulkHarness,
) -> None:
    await fill(bulk)
    begun = await bulk.parts.desk.erase_user(bulk.scope, "ana", "human:admin", whole_org=True)
    later = await bulk.set("food", "eats soup", user_id="ana")
    await finished(bulk, begun)
    assert await bulk.count("memory_versions", f"org = '{bulk.scope.org}' AND user_id = 'ana'") == 1
    assert await left(bulk, "ben", f"org = '{bulk.scope.org}'") > 0
    assert await bulk.get("food", "ana", scope=bulk.foreign) is not None
    found = await bulk.get("food", "ana")
    assert found is not None
    assert (found.content.value, found.revision) == ("eats soup", later.revision)
    assert [one.content.value for one in await bulk.history("food", "ana")] == ["eats soup"]


async def test_it_goes_on_from_any_step_in_another_process(bulk: BulkHarness) -> None:
    """A step that fails stands for a process that is killed there: what was done is stored, and nothing else."""
    await fill(bulk)
    peer = Peer()
    first = replace(await bulk_over(bulk.ch, peers=[peer]), scope=bulk.scope)
    begun = await first.parts.desk.erase_user(bulk.scope, "ana", "human:admin", whole_org=False)
    steps = 0
    while True:
        process = replace(await bulk_over(bulk.ch, peers=[peer]), scope=bulk.scope)
        with killed_after_one_step(process.parts.saga):
            await process.parts.erasure_worker.work()
        receipt = await process.parts.erasures.get(begun.org, begun.erasure_id)
        assert receipt is not None
        if receipt.state == FINISHED or steps > 60:
            break
        steps += 1
    await finished(first, begun)
    assert steps > len(OWN) + len(DERIVED)
    assert await left(bulk, "ana", f"org = '{bulk.scope.org}' AND namespace = 'team'") == 0
    named = {memory.key for subject in peer.erased for memory in subject.memories}
    assert named == {"food", "deleted"}
    assert all(subject.org == bulk.scope.org for subject in peer.erased)


class killed_after_one_step:
    """Lets the work end once, right after the next step is stored."""

    def __init__(self, saga: ErasureSaga) -> None:
        self._saga = saga

    def __enter__(self) -> None:
        save = self._saga._save

        async def once(receipt: Receipt) -> Receipt:
            await save(receipt)
            raise BackendUnavailable("killed")

        self._saga._save = once  # type: ignore[method-assign]

    def __exit__(self, *error: object) -> None:
        return None


async def test_a_service_that_is_away_is_waited_for_and_what_it_still_holds_begins_it_again(bulk: BulkHarness) -> None:
    await fill(bulk)
    peer = Peer()
    process = replace(await bulk_over(bulk.ch, peers=[peer]), scope=bulk.scope)
    peer.failure = BackendUnavailable("away")
    begun = await process.parts.desk.erase_user(bulk.scope, "ana", "human:admin", whole_org=False)
    assert await process.parts.erasure_worker.work()
    receipt = await process.parts.erasures.get(begun.org, begun.erasure_id)
    assert receipt is not None
    assert (receipt.state, receipt.waiting_for) == (RUNNING, "another attempt after BACKEND_UNAVAILABLE")
    # A service that still holds something when all is counted begins the removal again.
    peer.failure, peer.left = None, 3
    assert await process.parts.erasure_worker.work()
    asked = len(peer.erased)
    peer.left = 1
    await finished(process, begun)
    assert len(peer.erased) > asked


async def test_texts_are_replaced_in_every_version_and_a_named_memory_goes_whole(bulk: BulkHarness) -> None:
    await fill(bulk)
    await bulk.set("card", "the number is 4111-1111 and 4222-2222", source="from 4111-1111", agent="a 4111-1111")
    for number in range(9):
        await bulk.set(f"copy-{number}", "the same words in every one")

    async def redact(key: str, user_id: str = "", text: str = "", regex: str = "", by: str = "") -> Receipt:
        identities = [Identity(key, user_id)]
        return await bulk.parts.desk.redact(
            bulk.scope, identities, "human:admin", text=text, regex=regex, replacement=by
        )

    begun = [
        await redact("food", "ana", text="xyzzy", by="[x]"),
        await redact("card", regex=r"\d{4}-\d{4}", by=r"\1"),
        await redact("copy-7"),
    ]
    for receipt in begun:
        await finished(bulk, receipt)
    assert [one.content.value for one in await bulk.history("food", "ana")] == [
        "ana eats [x]new rice",
        "ana ate [x]old bread",
    ]
    found = await bulk.get("food", "ana")
    assert found is not None
    assert (found.revision, found.content.tags) == (2, ("meal",))
    here = f"org = '{bulk.scope.org}' AND namespace = 'team' AND memory_key = 'food'"
    assert await bulk.count("memory_embeddings", f"{here} AND user_id = 'ana' AND embedding_dim > 0") == 0
    assert await bulk.count("memory_embeddings", f"{here} AND user_id = 'ana' AND version = {found.version}") == 1
    assert await bulk.count("memory", f"{here} AND user_id = 'ben' AND value LIKE '%xyzzy%'") >= 1
    assert await bulk.count("memory_signals", f"{here} AND user_id = 'ana'") > 0
    card = await bulk.get("card")
    assert card is not None
    assert (card.content.value, card.content.source) == (r"the number is \1 and \1", r"from \1")
    assert card.content.agent == r"a \1"
    copies = [one for one in await bulk.export(with_vectors=False) if b'"copy-' in one]
    assert len(copies) == 8
    assert not any(b'"copy-7"' in one for one in copies)
    for bad in (
        {"regex": "("},
        {"regex": "a) b"},
        {"regex": "x*"},
        {"text": "car"},
        {"text": "a", "by": "a"},
        {"text": "a", "regex": "b"},
    ):
        with pytest.raises(InvalidArgument):
            await redact("card", **bad)
    for named in (("id 4111-1111", ""), ("card", "4111-1111")):
        with pytest.raises(InvalidArgument):
            await redact(*named, regex=r"\d{4}-\d{4}")


async def test_one_that_is_killed_before_it_says_that_it_is_finished_says_so_the_next_time(bulk: BulkHarness) -> None:
    begun = await bulk.parts.desk.redact(
        bulk.scope, [Identity("none")], "human:admin", text="4111-1111", regex="", replacement=""
    )
    with killed_after_one_step(bulk.parts.saga):
        await bulk.parts.erasure_worker.work()
    await bulk.ch.command("ALTER TABLE erasure_work DELETE WHERE 1", settings={"mutations_sync": 2})
    receipt = await finished(bulk, begun)
    # A digest of a number of a few digits tells the number.
    assert receipt.subject_digest == ""
    told = {"digest": begun.subject_digest}
    count = "SELECT count() FROM erasure_receipts WHERE subject_digest = {digest:String}"
    assert (await bulk.ch.query(count, told)).scalar() == 0


def holds(engine: EmbeddedEngine, text: str) -> bool:
    """Says whether any file below the engine's directory holds a text, as far as columns are not packed."""
    root: Path = engine.directory.path
    return any(text.encode() in path.read_bytes() for path in root.rglob("*") if path.is_file())
