"""Profiles, their folds and procedures over the real engine."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc.aio
import pytest
from support.grpc import Deployment, bearer, reason_of
from support.memory import CONCEPTS, NAMELESS, MemoryHarness, gate_of, memory_over
from support.shared_database import emptied, shared_database

from loom.memory.v1 import (
    context_pb2,
    context_pb2_grpc,
    procedure_pb2,
    procedure_pb2_grpc,
    profile_pb2,
    profile_pb2_grpc,
)
from loom_common.auth.claims import Claims, NamespaceGrant, ReadScope, Role
from loom_common.call import Call, Scope, bind
from loom_common.clickhouse import ClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.clock import FakeClock
from loom_common.erasure import ErasureSteps, NamedMemory, Subject
from loom_common.errors import Conflict, InvalidArgument, ModelCallRefused, NotFound
from loom_common.features import Feature
from loom_common.leases import Leases
from loom_common.ledger import FakeLedgerSink
from loom_memory.app.embedding import Chunk
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.llm_fake import FakeLlm
from loom_memory.app.passes import Passes
from loom_memory.domain.vectors import Parts, VectorSpace
from loom_memory.procedures.app.procedures import Saving
from loom_memory.profiles.app.folding import Folding, ProfileFolds
from loom_memory.profiles.app.match import ProfileQuery
from loom_memory.profiles.app.sections import ProfileSections, Writing
from loom_memory.profiles.domain.schemas import FieldType, ProfileField
from loom_memory.profiles.domain.sections import Origin, Owner, ProfileSection
from loom_memory.profiles.store.schemas import SchemaRepository
from loom_memory.profiles.store.sources import FoldSourceRepository
from loom_memory.store.census import CENSUS
from loom_memory.store.entities import EntityRepository
from loom_memory.store.worker_passes import WorkerPassRepository
from loom_memory.workers.leading import Leading

TABLES = (
    "memory", "memory_versions", "memory_embeddings", "profile_sections", "profile_schemas", "item_vectors",
    "procedures", "procedure_outcomes", "worker_passes", "worker_cursors", "leases",
)  # fmt: skip
TEAM = Scope("acme", "team")
ANN = Owner("ann")
CITY = json.dumps({"sections": [{"label": "city", "value": "Berlin", "sources": [1]}]})


@pytest.fixture(scope="module")
def clickhouse_database(clickhouse_engine: EmbeddedEngine) -> Iterator[str]:
    """One database for all tests here."""
    yield from shared_database(clickhouse_engine, "t_profiles")


@pytest.fixture
async def planes(clickhouse: ClickHouse) -> MemoryHarness:
    await emptied(clickhouse, "memory", "loom_memory", TABLES)
    return await memory_over(clickhouse)


def of_token(scope: ReadScope, **more: str) -> Call:
    held = Claims(
        sub="sa:bot", org="acme", namespaces=(NamespaceGrant("team", Role.WRITER),), jti="j", iat=0, exp=1,
        read_scope=scope, **more,  # type: ignore[arg-type]  # names of the token's user and session
    )  # fmt: skip
    return Call(claims=held)


async def put(planes: MemoryHarness, label: str, value: str, owner: Owner = ANN, **more: object) -> int:
    writing = Writing(owner, label, value, "human:ann", **more)  # type: ignore[arg-type]  # any field
    section, _ = await planes.parts.profiles.sections.set(TEAM, writing)
    return 0 if section is None else section.version


async def labels(planes: MemoryHarness, text: str, scope: Scope = TEAM, **more: object) -> list[str]:
    findings = await planes.parts.profiles.match.match(scope, ProfileQuery(text, **more))  # type: ignore[arg-type]  # any field
    return [hit.section.label for hit in findings.hits]


async def test_a_section_keeps_its_versions_and_an_older_one_never_shows_through(planes: MemoryHarness) -> None:
    sections = planes.parts.profiles.sections
    assert await put(planes, "Home city", "Paris", expected=0) == 1
    assert await put(planes, "home_city", "Paris") == 1, "the same value makes no version"
    assert await put(planes, "home-city", "Berlin", expected=1) == 2
    with pytest.raises(Conflict):
        await put(planes, "home city", "Rome", expected=1)
    assert [one.value for one in await sections.stable(TEAM, "ann")] == ["Berlin"]
    assert await put(planes, "home city", "", expected=2) == 3
    assert await sections.stable(TEAM, "ann") == ()
    assert await labels(planes, "home city Berlin") == []
    told = await sections.history(TEAM, ANN, "Home city", 2**32 - 1, 10)
    assert [(one.version, one.value, one.is_removed) for one in told] == [
        (3, "", True), (2, "Berlin", False), (1, "Paris", False),
    ]  # fmt: skip
    assert await put(planes, "home city", "Oslo", expected=3) == 4


async def test_of_writers_at_once_that_expect_one_version_one_wins(planes: MemoryHarness) -> None:
    outcomes = await asyncio.gather(
        *(put(planes, "city", f"Town {number}", expected=0) for number in range(6)), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in outcomes) == ["Conflict"] * 5 + ["int"]


async def test_words_come_before_meaning_and_what_is_unrelated_does_not_come(planes: MemoryHarness) -> None:
    await put(planes, "car", "a red automobile")
    await put(planes, "drink", "espresso in the morning")
    await put(planes, "error code", "ZX-4417-Q")
    assert await labels(planes, "what about ZX-4417-Q in the log of yesterday's long night run") == ["error code"]
    assert (await labels(planes, "beverage in the morning"))[0] == "drink"
    assert (await labels(planes, "vehicle red"))[0] == "car"
    assert await labels(planes, "quarterly tax filing deadline") == []
    assert await labels(planes, "") == []


async def test_a_profile_stays_within_its_org_namespace_owner_and_token(planes: MemoryHarness) -> None:
    profiles = planes.parts.profiles
    await put(planes, "city", "Berlin", ANN)
    await put(planes, "city", "Paris", Owner("bob"))
    await put(planes, "city", "everywhere", Owner())
    await put(planes, "city", "the desk", Owner("", "coder"))
    assert [one.value for one in await profiles.sections.stable(TEAM, "ann", "coder")] == [
        "everywhere", "the desk", "Berlin",
    ]  # fmt: skip
    assert await profiles.sections.stable(TEAM, "ann", "coder") == await profiles.sections.stable(TEAM, "ann", "coder")
    for other in (Scope("acme", "home"), Scope("rival", "team")):
        assert await profiles.sections.stable(other, "ann") == ()
        assert await labels(planes, "city Berlin", other) == []
    with bind(of_token(ReadScope.OWN_USER, user_id="ann")):
        found = await profiles.match.match(TEAM, ProfileQuery("city"))
        assert [hit.section.value for hit in found.hits] == ["Berlin"]
        assert [one.value for one in await profiles.sections.stable(TEAM, "ann")] == ["Berlin"]
        assert await labels(planes, "city", user_id="bob") == []
    with bind(of_token(ReadScope.OWN_SESSION, user_id="ann", session_id="s")):
        assert await labels(planes, "city") == []


async def test_a_schema_types_what_is_written_and_a_closed_one_refuses_other_labels(planes: MemoryHarness) -> None:
    schemas = planes.parts.profiles.schemas
    fields = [ProfileField("Age", FieldType.INTEGER), ProfileField("Plan", FieldType.CHOICE, choices=("free", "paid"))]
    assert await schemas.set(TEAM, fields, "human:ann", is_closed=True, expected=0) == (1, True)
    assert await schemas.set(TEAM, fields, "human:ann", is_closed=True, expected=None) == (1, False)
    with pytest.raises(Conflict):
        await schemas.set(TEAM, [], "human:ann", is_closed=False, expected=0)
    await put(planes, "age", "041")
    assert [(one.label, one.value) for one in await planes.parts.profiles.sections.stable(TEAM, "ann")] == [
        ("Age", "41")
    ]
    for label, value in (("age", "old"), ("plan", "gold"), ("colour", "red"), ("age", "4\x001")):
        with pytest.raises(InvalidArgument):
            await put(planes, label, value)
    assert await schemas.set(TEAM, [], "human:ann", is_closed=False, expected=1) == (2, True)
    assert await schemas.read(TEAM) == (None, 2)
    assert await put(planes, "colour", "red") == 1


async def test_items_without_vectors_wait_and_get_them(planes: MemoryHarness) -> None:
    vectors = planes.parts.profiles.vectors
    await put(planes, "car", "a red automobile")
    other = VectorSpace("another", 8)
    assert await vectors.waiting(TEAM, other, Parts.ALL) == 1
    batches = [batch async for batch in vectors.batches(TEAM, other, Parts.ALL, 10, staged=False)]
    embedded = [(waiting, await _chunks(waiting.text)) for batch in batches for waiting in batch]
    assert await vectors.store(TEAM, other, embedded, staged=False) == 1
    assert await vectors.waiting(TEAM, other, Parts.ALL) == 0
    assert await vectors.store(TEAM, other, embedded, staged=False) == 0, "an older text's vector is not stored"


async def _chunks(text: str) -> list[Chunk]:
    (chunks,) = await FakeEmbedding(CONCEPTS, dim=8).embed_many([text])
    assert isinstance(chunks, list)
    return chunks


async def test_procedures_are_found_by_their_situation_and_count_their_outcomes(planes: MemoryHarness) -> None:
    procedures, match = planes.parts.procedures.procedures, planes.parts.procedures.match
    saved, changed = await procedures.save(TEAM, Saving("The export test is flaky", "Pin the clock.", "human:ann"))
    assert (saved.version, changed) == (1, True)
    again, changed = await procedures.save(TEAM, Saving("the export test  is flaky", "Pin the clock.", "human:ann"))
    assert (again.id, changed) == (saved.id, True), "the situation's own spelling is kept as it was said last"
    _, changed = await procedures.save(TEAM, Saving("the export test  is flaky", "Pin the clock.", "human:bob"))
    assert not changed
    await procedures.save(TEAM, Saving("The car does not start", "Charge it.", "human:ann", id="car"))
    assert [hit.procedure.id for hit in await match.match(TEAM, "flaky export test on CI")] == [saved.id]
    assert [hit.procedure.id for hit in await match.match(TEAM, "the vehicle does not start")] == ["car"]
    assert await match.match(TEAM, "quarterly tax filing") == ()
    assert await match.match(Scope("rival", "team"), "flaky export test") == ()
    assert await procedures.record(TEAM, "car", "run-1", "human:ann", succeeded=False) == (1, 0)
    assert await procedures.record(TEAM, "car", "run-1", "human:ann", succeeded=True) == (1, 1)
    assert await procedures.record(TEAM, "car", "", "human:ann", succeeded=True) == (2, 2)
    with pytest.raises(NotFound):
        await procedures.record(TEAM, "none", "", "human:ann", succeeded=True)
    with pytest.raises(Conflict):
        await procedures.save(TEAM, Saving("x", "y", "human:ann", id="car", expected=5))
    assert [one.id for one in await procedures.page(TEAM, "", "procedure", 1)] == ["car"]
    assert [one.id for one in await procedures.page(TEAM, "car", "", 5)] == [saved.id]
    assert await procedures.delete(TEAM, "car", "human:ann")
    assert not await procedures.delete(TEAM, "car", "human:ann")
    assert await procedures.get(TEAM, "car") is None
    # What takes the name of one that is gone has none of its experience.
    await procedures.save(TEAM, Saving("Parking", "Slowly.", "human:bob", user_id="bob", id="car"))
    assert [(one.uses, one.successes) for one in [await procedures.get(TEAM, "car")] if one] == [(0, 0)]
    assert await procedures.record(TEAM, "car", "run-1", "human:bob", succeeded=True) == (1, 1)
    assert await match.match(TEAM, "the vehicle does not start") == ()


async def test_a_process_whose_clock_is_behind_replaces_what_another_stored(
    planes: MemoryHarness, clickhouse: ClickHouse
) -> None:
    ahead = await memory_over(clickhouse, clock=FakeClock(datetime.now(UTC) + timedelta(hours=1)))
    await ahead.parts.procedures.procedures.save(TEAM, Saving("Deploying", "Slowly.", "human:ann", id="p"))
    await planes.parts.procedures.procedures.save(TEAM, Saving("Deploying", "Fast.", "human:bob", id="p"))
    found = await ahead.parts.procedures.procedures.get(TEAM, "p")
    assert found is not None
    assert (found.version, found.body) == (2, "Fast.")


async def test_a_narrow_token_neither_finds_nor_deletes_anothers_procedure(planes: MemoryHarness) -> None:
    parts = planes.parts.procedures
    await parts.procedures.save(TEAM, Saving("Deploy to staging", "Run it.", "human:bob", user_id="bob", id="deploy"))
    with bind(of_token(ReadScope.OWN_USER, user_id="ann")):
        assert await parts.match.match(TEAM, "deploy to staging") == ()
        assert await parts.procedures.get(TEAM, "deploy") is None
        assert await parts.procedures.page(TEAM, "", "", 10) == []
        assert not await parts.procedures.delete(TEAM, "deploy", "human:ann")
        with pytest.raises(InvalidArgument):
            await parts.procedures.save(TEAM, Saving("x", "y", "human:ann", user_id="ann", id="deploy"))


class Folds:
    """The worker of one process over the harness."""

    def __init__(self, planes: MemoryHarness, *, structured: bool = False, slots: int = 10) -> None:
        self.planes = planes
        self.llm = FakeLlm()
        self.llm.rule = lambda asked: CITY
        self.clock = FakeClock(datetime.fromisoformat("2030-01-01T00:00:00+00:00"))
        self.ledger = FakeLedgerSink()
        self.structured = structured
        self.slots = slots

    def leading(self, sections: ProfileSections | None = None) -> Leading:
        ch, parts = self.planes.ch, self.planes.parts.profiles
        feature = Feature.STRUCTURED_PROFILE if self.structured else Feature.PROFILE_CONSOLIDATION
        passes = WorkerPassRepository(ch)
        worker = ProfileFolds(
            Folding(feature, "", self.structured, "small-model" if self.structured else ""),
            FoldSourceRepository(ch),
            EntityRepository(ch),
            SchemaRepository(ch),
            parts.schemas,
            sections or parts.sections,
            passes,
            self.llm,
            Passes(feature, self.clock, self.ledger),
            gate_of(NAMELESS),
            self.clock,
            slots=self.slots,
        )
        return Leading(worker, Leases(ch, "memory"), passes, self.clock)


async def test_five_identical_chats_leave_one_field_and_ask_once_for_each_news(planes: MemoryHarness) -> None:
    folds = Folds(planes)
    worker = folds.leading()
    for number in range(5):
        await planes.set(f"chat-{number}", "I moved to Berlin", user_id="ann", actor="human:ann")
        await worker.turn()
    await folds.leading().turn()
    (section,) = await planes.parts.profiles.sections.stable(TEAM, "ann")
    assert (section.label, section.value, section.version, section.origin) == ("city", "Berlin", 1, Origin.FOLD)
    assert [one.key for one in section.evidence] == ["chat-0"]
    assert {asked.attribution.subject for asked in folds.llm.asked if asked.attribution} == {"ann"}
    assert len(folds.ledger.entries) == len(folds.llm.asked) == 5, "one row for each pass and organisation"
    folds.llm.rule = lambda asked: CITY.replace("city", "home town")
    await planes.set("chat-9", "I moved to Berlin!", user_id="ann")
    await worker.turn()
    assert len(await planes.parts.profiles.sections.stable(TEAM, "ann")) == 1, "the same value under another label"


async def test_what_a_caller_wrote_is_not_taken_over_and_newer_memories_change_what_was_folded(
    planes: MemoryHarness,
) -> None:
    folds = Folds(planes)
    await put(planes, "city", "Oslo")
    await planes.set("a", "I moved to Berlin", user_id="ann")
    await planes.set("b", "I moved to Berlin", user_id="bob")
    await folds.leading().turn()
    sections = planes.parts.profiles.sections
    assert [one.value for one in await sections.stable(TEAM, "ann")] == ["Oslo"]
    await planes.set("c", "I moved to Rome", user_id="bob")
    folds.llm.rule = lambda asked: CITY.replace("Berlin", "Rome").replace("[1]", "[1, 2]")
    await folds.leading().turn()
    (now,) = await sections.stable(TEAM, "bob")
    assert (now.value, now.version) == ("Rome", 2)


async def test_a_structured_fold_fills_fields_only_and_asks_its_own_model(planes: MemoryHarness) -> None:
    folds = Folds(planes, structured=True)
    await planes.set("a", "I am 41 and moved to Berlin", user_id="ann")
    await folds.leading().turn()
    assert folds.llm.asked == [], "the namespace has no schema"
    await planes.parts.profiles.schemas.set(
        TEAM, [ProfileField("Age", FieldType.INTEGER)], "human:ann", is_closed=False, expected=None
    )
    entries = [
        {"label": "age", "value": "41", "sources": [1]},
        {"label": "city", "value": "Berlin", "sources": [1]},
        {"label": "AGE", "value": "12", "sources": [1]},
    ]
    folds.llm.rule = lambda asked: json.dumps({"sections": entries})
    await folds.leading().turn()
    assert [(one.label, one.value) for one in await planes.parts.profiles.sections.stable(TEAM, "ann")] == [
        ("Age", "41")
    ]
    assert [asked.model for asked in folds.llm.asked] == ["small-model"]


async def test_a_held_users_slot_goes_to_the_next_and_its_own_turn_comes(planes: MemoryHarness) -> None:
    folds = Folds(planes, slots=1)
    await planes.set("a", "I moved to Berlin", user_id="ann", actor="human:ann")
    await planes.set("b", "I moved to Berlin", user_id="bob", actor="human:bob")
    refused = ModelCallRefused("no", retry_after_s=30)
    folds.llm.rule = lambda asked: refused if asked.attribution and asked.attribution.subject == "ann" else CITY
    worker = folds.leading()
    await worker.turn()
    sections = planes.parts.profiles.sections
    assert await sections.stable(TEAM, "ann") == ()
    assert len(await sections.stable(TEAM, "bob")) == 1
    asked = len(folds.llm.asked)
    await worker.turn()
    assert len(folds.llm.asked) == asked, "whoever is held is left out of the scan"
    folds.llm.rule = lambda asked: CITY
    folds.clock.advance(31)
    await worker.turn()
    assert len(await sections.stable(TEAM, "ann")) == 1


class Killed(Exception):
    """The process ends here."""


class KillingSections(ProfileSections):
    """Ends the process before, or right after, a section is stored."""

    def __init__(self, real: ProfileSections, *, after: bool) -> None:
        self._real = real
        self._after = after

    async def of_owner(self, scope: Scope, owner: Owner) -> tuple[ProfileSection, ...]:
        return await self._real.of_owner(scope, owner)

    async def fold(self, scope: Scope, writing: Writing) -> bool:
        if self._after:
            await self._real.fold(scope, writing)
        raise Killed


@pytest.mark.parametrize("after", [False, True])
async def test_a_fold_that_is_killed_is_finished_once_by_the_next_holder(planes: MemoryHarness, after: bool) -> None:
    folds = Folds(planes)
    await planes.set("a", "I moved to Berlin", user_id="ann")
    with pytest.raises(Killed):
        await folds.leading(KillingSections(planes.parts.profiles.sections, after=after)).turn()
    folds.clock.advance(120)
    await planes.ch.command("TRUNCATE TABLE leases")
    await folds.leading().turn()
    (section,) = await planes.parts.profiles.sections.stable(TEAM, "ann")
    assert (section.value, section.version) == ("Berlin", 1)
    assert len(await planes.parts.profiles.sections.history(TEAM, ANN, "city", 2**32 - 1, 10)) == 1


async def test_a_fake_model_folds_nothing(planes: MemoryHarness) -> None:
    folds = Folds(planes)
    folds.llm.fake = True
    await planes.set("a", "I moved to Berlin", user_id="ann")
    assert not await folds.leading().worker.has_work()


async def test_an_erasure_reaches_sections_by_user_and_by_evidence(planes: MemoryHarness) -> None:
    folds = Folds(planes)
    await planes.set("a", "I moved to Berlin", user_id="bob")
    await folds.leading().turn()
    await put(planes, "city", "Oslo", ANN)
    await planes.parts.procedures.procedures.save(TEAM, Saving("s", "b", "human:ann", user_id="ann", id="of-ann"))
    steps = ErasureSteps(planes.ch, CENSUS)
    started = datetime.fromisoformat("2031-01-01T00:00:00+00:00")
    by_memory = Subject("acme", "team", "", (NamedMemory("team", "a", "bob", ""),), started, texts_only=True)
    by_user = Subject("acme", "team", "ann", (), started)
    tables = ("item_vectors", "profile_sections", "procedures")
    for subject, expected in (
        (by_memory, {"item_vectors": 1, "profile_sections": 1}),
        (by_user, dict.fromkeys(tables, 0)),
    ):
        held = {one.table: one.remaining for one in await steps.census(subject)}
        for table, least in expected.items():
            assert held[table] >= max(least, 1), (subject, table)
        for table in tables:
            assert await steps.erase(subject, table) == 0
    assert await planes.parts.profiles.sections.stable(TEAM, "bob") == ()
    assert await planes.parts.profiles.sections.stable(TEAM, "ann") == ()
    rows = await planes.ch.query("SELECT count() FROM item_vectors")
    assert rows.scalar() == 0


async def test_profiles_and_procedures_are_served_over_grpc_and_packed(
    clickhouse: ClickHouse, service_keys: Path
) -> None:
    await emptied(clickhouse, "memory", "loom_memory", TABLES)
    deployment = Deployment(service_keys)
    parts = (await memory_over(clickhouse, directory=deployment.directory)).parts
    services = parts.profiles.service(), parts.procedures.service(), parts.context.service()
    async with deployment.serving(*services) as server, grpc.aio.insecure_channel(server.address) as channel:
        profile = profile_pb2_grpc.ProfileServiceStub(channel)
        procedure = procedure_pb2_grpc.ProcedureServiceStub(channel)
        writer, reader = bearer(deployment.token("team:writer")), bearer(deployment.token("team:viewer"))
        written = profile_pb2.SetProfileSectionRequest(user_id="ann", label="city", value="Berlin </profile>")
        answer = await profile.SetProfileSection(written, metadata=writer)
        assert (answer.version, answer.changed) == (1, True)
        for call, reason in (
            (profile.SetProfileSection(written, metadata=reader), "AUTH_INSUFFICIENT"),
            (profile.SetProfileSchema(profile_pb2.SetProfileSchemaRequest(), metadata=writer), "AUTH_INSUFFICIENT"),
            (profile.SetProfileSection(_section("x" * 129, "y"), metadata=writer), "INVALID_ARGUMENT"),
            (profile.SetProfileSection(_section("\u2028 ", "y"), metadata=writer), "INVALID_ARGUMENT"),
            (profile.SetProfileSection(_section("x", "\x00"), metadata=writer), "INVALID_ARGUMENT"),
            (profile.SetProfileSection(_section("x", "é" * 2049), metadata=writer), "INVALID_ARGUMENT"),
            (
                profile.GetProfile(profile_pb2.GetProfileRequest(namespace="other"), metadata=reader),
                "AUTH_INSUFFICIENT",
            ),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert reason_of(caught.value) == reason
        told = await profile.GetProfile(profile_pb2.GetProfileRequest(user_id="ann"), metadata=reader)
        assert [(one.label, one.value, one.origin) for one in told.sections] == [("city", "Berlin </profile>", "set")]
        saving = procedure_pb2.SaveProcedureRequest(situation="The export test is flaky", body="Pin the clock.")
        saved = await procedure.SaveProcedure(saving, metadata=writer)
        outcome = procedure_pb2.RecordOutcomeRequest(procedure_id=saved.procedure_id, succeeded=True)
        assert (await procedure.RecordOutcome(outcome, metadata=writer)).success_count == 1
        matching = procedure_pb2.MatchProceduresRequest(situation="export test flaky")
        (hit,) = (await procedure.MatchProcedures(matching, metadata=reader)).hits
        assert (hit.procedure.procedure_id, hit.procedure.use_count, hit.by_words) == (saved.procedure_id, 1, True)
        wanted = context_pb2.PackContextRequest(user_id="ann", situation="export test flaky")
        pack = await context_pb2_grpc.ContextServiceStub(channel).PackContext(wanted, metadata=reader)
        assert {"profile", "procedures"} <= {section.name for section in pack.sections if section.items}
        assert "(procedure) The export test is flaky: Pin the clock." in pack.rendered
        assert "\n| city: Berlin </profile>\n" in pack.rendered[: pack.stable_prefix_chars], "inside its fence"
    await parts.deletions.close()
    await parts.workers.close()


def _section(label: str, value: str) -> profile_pb2.SetProfileSectionRequest:
    return profile_pb2.SetProfileSectionRequest(label=label, value=value)
