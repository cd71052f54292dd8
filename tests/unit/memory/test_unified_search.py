"""A search over everything: its legs side by side, and what becomes of the answer where one of them fails."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from loom_common.auth.claims import Claims, NamespaceGrant, Role
from loom_common.auth.directory import FakeDirectory, NamespaceInfo
from loom_common.call import Call, Scope, bind
from loom_common.clock import FakeClock
from loom_common.errors import BackendUnavailable, InvalidArgument
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.search import SearchQuery
from loom_memory.app.search.answering import Answer, Presentation
from loom_memory.app.search.namespaces import CallerNamespaces, FanOut
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.app.thresholds_fake import FakeThresholds
from loom_memory.domain.excerpts import Bodies
from loom_memory.domain.memory import Content, Filter, Hit, Identity, Kept, Memory, SearchResult
from loom_memory.knowledge.app.search import KnowledgeHit, KnowledgeQuery, KnowledgeResult
from loom_memory.knowledge.domain.chunks import ChunkPlace
from loom_memory.knowledge.domain.documents import Document, DocumentFacts, Kind
from loom_memory.knowledge.domain.ranking import Candidate, Ranked
from loom_memory.knowledge.domain.sections import Section
from loom_memory.knowledge.store.chunks import StoredChunk
from loom_memory.settings import MemorySettings
from loom_memory.unified.api.messages import response_from_found
from loom_memory.unified.app.asking import Asking
from loom_memory.unified.app.found import Asked, Found
from loom_memory.unified.app.legs import BOUNDS_S, Leg
from loom_memory.unified.app.once import OnceEmbedding
from loom_memory.unified.app.ports import (
    FakeConversations,
    FakeProfiles,
    FakeRepositories,
    FakeTracker,
    SectionMatch,
    TurnMatch,
    TurnsFound,
    Verdict,
)
from loom_memory.unified.app.search import Gates, UnifiedSearch
from loom_memory.unified.domain.composing import FloorMode

HOME, OTHER, TRUNK = Scope("acme", "home"), Scope("acme", "other"), Scope("acme", "repo")
NOW = datetime(2026, 11, 30, tzinfo=UTC)
LONG = "word " * 100


@dataclass
class Memories:
    """Answers each namespace with what it was given, after it has embedded the query."""

    embedding: OnceEmbedding
    found: dict[Scope, SearchResult] = field(default_factory=dict)
    asked: list[tuple[Scope, SearchQuery]] = field(default_factory=list)
    fails: Exception | None = None

    async def search(self, scope: Scope, query: SearchQuery) -> SearchResult:
        self.asked.append((scope, query))
        await self.embedding.embed_query(query.text)
        if self.fails:
            raise self.fails
        return self.found.get(scope, SearchResult(abstain_code="empty_namespace"))


@dataclass
class Documents:
    """The same of documents."""

    embedding: OnceEmbedding
    found: dict[Scope, list[KnowledgeHit]] = field(default_factory=dict)
    asked: list[tuple[Scope, KnowledgeQuery]] = field(default_factory=list)
    fails: Exception | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def reranker(self, asked: str | None) -> tuple[str, bool]:
        return "", False

    async def search(self, scope: Scope, query: KnowledgeQuery) -> KnowledgeResult:
        self.asked.append((scope, query))
        await self.gate.wait()
        await self.embedding.embed_query(query.text)
        if self.fails:
            raise self.fails
        hits = self.found.get(scope, [])
        return KnowledgeResult(hits, len(hits), "" if hits else "no_match")


@dataclass
class Desk:
    """Notes what is taken down."""

    shown: list[list[str]] = field(default_factory=list)
    traced: list[list[str]] = field(default_factory=list)
    kept: list[tuple[Scope, list[str], int]] = field(default_factory=list)
    pages: list[tuple[Scope, str]] = field(default_factory=list)

    async def page(self, scope: Scope, query: SearchQuery, look: Presentation) -> Answer:
        self.pages.append((scope, look.page))
        return Answer(SearchResult(candidates_total=7), ())

    async def keep(self, scope: Scope, query: SearchQuery, kept: Sequence[Kept], first: int) -> str:
        self.kept.append((scope, [each.identity.key for each in kept], first))
        return f"handle.{first}" if kept else ""

    def expose(self, hits: Sequence[Hit]) -> None:
        if hits:
            self.shown.append([each.memory.identity.key for each in hits])

    def take_down(self, scope: Scope, query: SearchQuery, hits: Sequence[Hit], request: Callable[[], str]) -> None:
        self.traced.append([each.memory.identity.key for each in hits])


@dataclass
class Planes:
    """Everything that a search asks, and the search."""

    port: FakeEmbedding
    memories: Memories
    documents: Documents
    profiles: FakeProfiles
    conversations: FakeConversations
    tracker: FakeTracker
    repositories: FakeRepositories
    directory: FakeDirectory
    desk: Desk
    gates: Gates = field(default_factory=Gates)
    bounds_s: dict[Leg, float] = field(default_factory=lambda: dict(BOUNDS_S))

    async def ask(self, text: str = "deploy", **more: object) -> Found:
        query = SearchQuery(
            text, Filter(tags=more.pop("tags", ())), int(more.pop("top_k", 5)), explain=bool(more.pop("explain", False))
        )  # type: ignore[arg-type, call-overload]
        look = Presentation(bodies=Bodies(str(more.pop("bodies", "excerpt"))), page=str(more.pop("page", "")))
        asking = Asking(
            self.memories,
            self.documents,
            self.profiles,
            self.conversations,
            self.tracker,
            self.repositories,
            self.directory,
        )
        once = self.memories.embedding
        thresholds = ThresholdsInForce(FakeThresholds(), MemorySettings(), FakeClock(NOW))
        namespaces = CallerNamespaces(self.directory, FanOut(("memory",), 8))
        search = UnifiedSearch(asking, namespaces, self.desk, once, thresholds, self.gates, self.bounds_s)
        claims = Claims("sa:crew:bot", "acme", (NamespaceGrant("*", Role.VIEWER),), "t", 0, 1)
        with bind(Call(claims=claims, deadline=more.pop("deadline", None))):  # type: ignore[arg-type]  # a float
            return await search.search(Asked(HOME, query, look, **more))  # type: ignore[arg-type]  # fields by name


@pytest.fixture
def planes() -> Planes:
    port = FakeEmbedding()
    once = OnceEmbedding(port)
    directory = FakeDirectory([NamespaceInfo("acme", "home"), NamespaceInfo("acme", "other")])
    directory.add(NamespaceInfo("acme", "repo", "code"))
    return Planes(
        port,
        Memories(once),
        Documents(once),
        FakeProfiles(),
        FakeConversations(),
        FakeTracker(),
        FakeRepositories(),
        directory,
        Desk(),
    )


def hit(key: str, similarity: float, scope: Scope = HOME, *, kind: str = "chunk", value: str = "") -> Hit:
    memory = Memory(scope, Identity(key), Content(value or key, kind=kind), "human:ann", 1, 1, NOW, NOW)
    return Hit(memory, similarity, similarity, similarity < 0.28)


def passage(
    uri: str, cosine: float | None, scope: Scope = HOME, *, exact: bool = False, text: str = ""
) -> KnowledgeHit:
    document = Document(scope, uri, DocumentFacts(uri, Kind.TEXT), "human:ann", 1, 1, NOW, NOW)
    section = Section(0, "intro", "Intro", 1, (uri, "Intro"), 0, 10, 0)
    place = ChunkPlace(uri, 1, 0)
    candidate = Candidate(place, 0, cosine, exact=exact)
    ranked = Ranked(candidate, cosine or 0.0, cosine or 0.5, (cosine or 0.5) < 0.28, False)
    return KnowledgeHit(document, section, StoredChunk(place, 0, 0, 10, text or uri), ranked)


def turn(number: int, scope: Scope = HOME) -> TurnMatch:
    return TurnMatch(scope, "c1", "Release", f"t{number}", number, "Ann", "user", f"turn {number}", NOW, 0.5, 0.5)


def section(label: str, similarity: float | None, *, by_words: bool = False, scope: Scope = HOME) -> SectionMatch:
    return SectionMatch(scope, label, f"likes {label}", "u1", "", NOW, 1, similarity, by_words)


def keys(found: Found) -> list[str]:
    return [each.hit.memory.identity.key for each in found.memory.hits]


def uris(found: Found) -> list[str]:
    assert found.knowledge is not None
    return [each.hit.document.source_uri for each in found.knowledge.hits]


def full(planes: Planes) -> None:
    planes.memories.found = {HOME: SearchResult([hit("m", 0.6)], 3), OTHER: SearchResult([hit("o", 0.5, OTHER)], 2)}
    planes.documents.found = {HOME: [passage("doc", 0.5)], OTHER: [passage("far", 0.4, OTHER)]}
    planes.profiles.found = {HOME: [section("tea", 0.5)]}
    planes.conversations.found = {HOME: TurnsFound([turn(1)])}


async def test_one_call_answers_with_every_plane_over_every_namespace(planes: Planes) -> None:
    full(planes)
    found = await planes.ask()
    assert keys(found) == ["m", "o"]
    assert uris(found) == ["doc", "far"]
    assert [each.label for each in found.profile.hits] == ["tea"]  # type: ignore[union-attr]  # asked
    assert [each.match.turn_id for each in found.conversations.hits] == ["t1"]  # type: ignore[union-attr]  # asked
    assert (found.tracker, found.memory.answer.result.candidates_total) == (None, 5)


async def test_a_query_is_embedded_once_however_many_legs_and_namespaces_there_are(planes: Planes) -> None:
    full(planes)
    await planes.ask()
    assert (len(planes.memories.asked), len(planes.documents.asked), planes.port.queries) == (2, 2, 1)


async def test_only_the_home_is_searched_for_what_later_pages_continue(planes: Planes) -> None:
    await planes.ask()
    assert {scope: query.wide for scope, query in planes.memories.asked} == {HOME: True, OTHER: False}


async def test_rules_promoted_for_another_agent_are_left_out_and_tags_narrow(planes: Planes) -> None:
    full(planes)
    found = await planes.ask(tags=("repo:x",))
    assert {(query.wanted.agent, query.wanted.tags) for _, query in planes.documents.asked} == {("bot", ("repo:x",))}
    # Neither a section of a profile nor a turn carries a tag.
    assert found.profile is not None
    assert found.conversations is not None
    assert not [*found.profile.hits, *found.conversations.hits]


@pytest.mark.parametrize("leg", ["memory", "knowledge", "profile", "conversations"])
@pytest.mark.parametrize(
    ("failure", "reason"), [(BackendUnavailable("away"), "BACKEND_UNAVAILABLE"), (ValueError("a bug"), "INTERNAL")]
)
async def test_a_leg_that_fails_answers_under_its_own_key_and_the_others_still_answer(
    planes: Planes, leg: str, failure: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(planes)

    async def fails(*_: object) -> None:
        raise failure

    port = {"memory": planes.memories, "knowledge": planes.documents, "profile": planes.profiles}
    target = port.get(leg, planes.conversations)
    monkeypatch.setattr(target, "match" if leg == "profile" else "search", fails)
    response = response_from_found(await planes.ask(), explain=False)
    sides = {name: getattr(response, name) for name in ("memory", "knowledge", "profile", "conversations")}
    assert {name: side.error for name, side in sides.items()} == {name: reason if name == leg else "" for name in sides}
    assert {name: bool(side.hits) for name, side in sides.items()} == {name: name != leg for name in sides}
    # No text of the failure reaches the caller.
    assert "bug" not in str(response)


async def test_a_leg_that_hangs_ends_with_its_bound_and_the_others_still_answer(planes: Planes) -> None:
    full(planes)
    planes.documents.gate.clear()
    planes.bounds_s[Leg.KNOWLEDGE] = 0.01
    found = await planes.ask()
    assert found.knowledge is not None
    assert (found.knowledge.error, list(found.knowledge.hits)) == ("DEADLINE_EXCEEDED", [])
    assert keys(found) == ["m", "o"]


async def test_no_leg_takes_longer_than_the_caller_waits(planes: Planes) -> None:
    full(planes)
    planes.documents.gate.clear()
    found = await planes.ask(deadline=asyncio.get_running_loop().time() + 0.2)
    assert found.knowledge is not None
    assert found.knowledge.error == "DEADLINE_EXCEEDED"
    assert keys(found) == ["m", "o"]


async def test_every_leg_has_a_bound() -> None:
    assert set(BOUNDS_S) == set(Leg)
    assert (BOUNDS_S[Leg.TRACKER], BOUNDS_S[Leg.REPOSITORY]) == (3.0, 1.5)


async def test_a_blank_query_is_refused(planes: Planes) -> None:
    with pytest.raises(InvalidArgument):
        await planes.ask("  ")


async def test_documents_answer_from_their_least_similarity_or_with_a_whole_identifier(planes: Planes) -> None:
    planes.documents.found = {
        HOME: [passage("near", 0.31), passage("far", 0.29), passage("named", 0.1, exact=True), passage("new", None)]
    }
    found = await planes.ask()
    assert uris(found) == ["near", "named", "new"]
    assert found.withheld == {"knowledge_floor": 1}
    planes.gates = replace(planes.gates, knowledge_min=0.0)
    assert len(uris(await planes.ask())) == 4


async def test_a_profile_section_answers_by_a_word_or_from_its_least_similarity(planes: Planes) -> None:
    planes.profiles.found = {HOME: [section("near", 0.39), section("far", 0.37), section("word", 0.1, by_words=True)]}
    found = await planes.ask()
    assert found.profile is not None
    assert [each.label for each in found.profile.hits] == ["near", "word"]


async def test_beside_a_fact_of_the_home_no_conversation_and_no_foreign_document_answers(planes: Planes) -> None:
    full(planes)
    planes.memories.found[HOME] = SearchResult([hit("fact", 0.6, kind="fact")], 1)
    found = await planes.ask()
    assert keys(found) == ["fact"]
    assert uris(found) == ["doc"]
    assert found.conversations is not None
    assert (list(found.conversations.hits), found.conversations.rendered) == ([], "")
    assert found.withheld == {"foreign_memories": 1, "foreign_knowledge": 1, "conversations": 1}
    assert "[o]" not in found.memory.rendered
    assert found.memory.answer.result.withheld == 1
    explained = await planes.ask(explain=True)
    assert keys(explained) == ["fact", "o"]
    assert uris(explained) == ["doc", "far"]
    assert explained.conversations is not None
    assert (len(explained.conversations.hits), explained.withheld) == (1, {})
    assert [told.startswith("why: ") for told in explained.memory.whys] == [True, True]


async def test_what_is_withheld_is_neither_shown_nor_taken_down(planes: Planes) -> None:
    planes.memories.found = {HOME: SearchResult([hit("near", 0.6), hit("far", 0.1)], 2)}
    await planes.ask()
    assert (planes.desk.shown, planes.desk.traced) == ([["near"]], [["near"]])


async def test_a_search_all_of_whose_memories_are_withheld_says_so(planes: Planes) -> None:
    planes.memories.found = {HOME: SearchResult([hit("far", 0.1)], 1)}
    found = await planes.ask()
    assert (keys(found), found.memory.answer.result.abstain_code) == ([], "below_floor")
    planes.memories.found = {}
    assert (await planes.ask()).memory.answer.result.abstain_code == "empty_namespace"


async def test_keys_alone_fill_up_where_the_mode_says_so(planes: Planes) -> None:
    planes.gates = Gates(floor_mode=FloorMode.IDS_ONLY)
    planes.memories.found = {HOME: SearchResult([hit("near", 0.6), hit("far", 0.1)], 2)}
    found = await planes.ask()
    assert [(each.hit.memory.identity.key, each.text, each.is_cut) for each in found.memory.hits] == [
        ("near", "near", False),
        ("far", "", True),
    ]
    assert (found.memory.answer.bodies_returned, found.memory.answer.bodies_elided) == (1, 1)


async def test_a_page_continues_the_home_alone_and_asks_no_other_plane(planes: Planes) -> None:
    found = await planes.ask(page="handle.5")
    assert planes.desk.pages == [(HOME, "handle.5")]
    assert (found.knowledge, found.profile, found.conversations, planes.memories.asked) == (None, None, None, [])
    assert found.memory.answer.result.candidates_total == 7


async def test_the_handle_continues_behind_the_homes_own_hits(planes: Planes) -> None:
    kept = (Kept("home", Identity("h3"), 0.5, 0.5, False),)
    planes.memories.found = {
        HOME: SearchResult([hit("h1", 0.6), hit("h2", 0.5)], 3, kept=kept),
        OTHER: SearchResult([hit("o", 0.55, OTHER)], 1),
    }
    found = await planes.ask(top_k=2)
    assert (keys(found), found.memory.answer.next_page) == (["h1", "o"], "handle.1")
    assert planes.desk.kept == [(HOME, ["h2", "h3"], 1)]


@pytest.mark.parametrize(("bodies", "shown"), [("excerpt", LONG[:200]), ("full", LONG), ("unit", LONG), ("none", "")])
async def test_bodies_says_how_much_of_each_text_is_shown(planes: Planes, bodies: str, shown: str) -> None:
    planes.memories.found = {HOME: SearchResult([hit("m", 0.6, value=LONG)], 1)}
    planes.documents.found = {HOME: [passage("doc", 0.5, text=LONG)]}
    planes.conversations.found = {HOME: TurnsFound([replace(turn(1), text=LONG)])}
    found = await planes.ask(bodies=bodies)
    assert found.knowledge is not None
    assert found.conversations is not None
    assert found.memory.hits[0].text == shown
    assert found.knowledge.hits[0].text == shown
    assert found.conversations.hits[0].text == shown


# Under a checkout


async def test_a_checkouts_decisions_and_documents_join_without_counting_as_the_searchs_own(planes: Planes) -> None:
    planes.repositories.trunks["repo@main"] = TRUNK
    decision = hit("d", 0.7, TRUNK, kind="decision", value=LONG)
    planes.memories.found = {HOME: SearchResult([hit("m", 0.6)], 1), TRUNK: SearchResult([decision], 1)}
    planes.documents.found = {HOME: [passage("doc", 0.5)], TRUNK: [passage("readme", 0.6, TRUNK)]}
    found = await planes.ask(code_scope="repo@main")
    assert keys(found) == ["d", "m"]
    assert uris(found) == ["readme", "doc"]
    assert found.memory.hits[0].text == LONG
    assert "(decision, repo)" in found.memory.rendered
    asked = dict(planes.memories.asked)
    assert asked[TRUNK].wanted.kinds == ("decision",)
    assert (found.memory.answer.result.candidates_total, found.memory.answer.bodies_returned) == (2, 1)
    assert (planes.desk.shown, planes.desk.traced) == ([["m"], ["d"]], [["m"]])
    bare = await planes.ask(code_scope="repo@main", bodies="none")
    assert bare.memory.hits[0].text == ""


async def test_a_checkout_that_is_not_indexed_or_not_the_callers_to_read_adds_nothing(planes: Planes) -> None:
    planes.repositories.trunks["secret@main"] = Scope("acme", "vault")
    planes.directory.add(NamespaceInfo("acme", "vault", "code", restricted=True))
    planes.memories.found = {Scope("acme", "vault"): SearchResult([hit("d", 0.7, Scope("acme", "vault"))], 1)}
    for checkout in ("other@main", "secret@main"):
        found = await planes.ask("panicked at src/main.rs:7", code_scope=checkout)
        assert (keys(found), found.tracker, found.repository_error) == ([], None, "")
    assert Scope("acme", "vault") not in dict(planes.memories.asked)


async def test_a_repository_that_hangs_is_told_and_the_rest_answers(planes: Planes) -> None:
    full(planes)
    planes.bounds_s[Leg.REPOSITORY] = 0.01

    class Hanging(FakeRepositories):
        async def trunk(self, org: str, code_scope: str) -> Scope | None:
            await asyncio.Event().wait()
            return None

    planes.repositories = Hanging()
    found = await planes.ask(code_scope="repo@main")
    assert (found.repository_error, keys(found)) == ("DEADLINE_EXCEEDED", ["m", "o"])


async def test_a_trackers_verdict_comes_for_a_defect_under_a_checkout_alone(planes: Planes) -> None:
    planes.tracker.verdict = Verdict("duplicate", "LOOM-12", "Export fails", status="open")
    quote = "loom_search 'x': 1 memory, 0 profile"
    planes.memories.found = {HOME: SearchResult([hit("quote", 0.6, value=quote), hit("m", 0.5)], 2)}
    defect = "panicked at src/main.rs:7"
    assert (await planes.ask(defect)).tracker is None
    assert (await planes.ask("when can we deploy?", code_scope="repo@main")).tracker is None
    found = await planes.ask(defect, code_scope="repo@main")
    assert found.tracker is not None
    assert found.tracker.verdict == planes.tracker.verdict
    assert "[LOOM-12] (duplicate, open) Export fails" in found.tracker.rendered
    assert (keys(found), found.withheld) == (["m"], {"quoted_recalls": 1})
