"""Documents over gRPC: taken in, found, read, cited, replaced, deleted; one server, an organisation for each test."""

import asyncio
import io
import itertools
import zipfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import grpc.aio
import pytest
import pytest_asyncio
from support.grpc import Deployment, bearer, reason_of
from support.memory import MemoryHarness, memory_over

from loom.memory.v1 import knowledge_pb2 as pb
from loom.memory.v1 import knowledge_pb2_grpc as pb_grpc
from loom_common.auth.directory import NamespaceInfo
from loom_common.call import Scope
from loom_common.clickhouse import ClickHouseSettings
from loom_common.clickhouse.embedded import EmbeddedClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.document_citations import DocumentCitation
from loom_common.errors import BackendUnavailable, ModelCallsOff, ProviderFailed
from loom_common.leases import Leases
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.llm_fake import FakeLlm
from loom_memory.app.reembedding import ReembedOptions
from loom_memory.knowledge.app.search import KnowledgeQuery, SearchMode
from loom_memory.knowledge.app.upkeep import GRACE_NS
from loom_memory.knowledge.domain.preparation import Source

pytestmark = pytest.mark.asyncio(loop_scope="module")

Metadata = tuple[tuple[str, str | bytes], ...]
_NUMBERS = itertools.count(1)

HANDBOOK = """# Handbook

Welcome to the company.

## Contents

- [Leave](#leave)
- [Pay](#pay)
- [Travel](#travel)
- [Holiday allowance](#holiday-allowance)

## Leave

### Holiday allowance

Everybody has thirty days of holiday each year, and unused days expire in March.

### Sick leave

Call your manager before nine o'clock. A physician's note is needed from the third day on.

## Pay

Salaries are paid on the 25th. Ask for code ZX-4417-Q at the counter.

## Pay

Bonuses are paid in June.

## License

Permission is hereby granted, free of charge, to copy this handbook about holiday, leave and pay.
"""


@dataclass
class Served:
    deployment: Deployment
    harness: MemoryHarness
    llm: FakeLlm
    stub: "pb_grpc.KnowledgeServiceAsyncStub"
    org: str = "acme"

    def token(self, *grants: str, **more: object) -> Metadata:
        return bearer(self.deployment.token(*(grants or ("team:writer",)), **{"org": self.org, **more}))

    async def ingest(self, *documents: pb.DocumentInput, metadata: Metadata | None = None) -> Sequence[pb.IngestResult]:
        answer = await self.stub.IngestDocuments(
            pb.IngestDocumentsRequest(documents=documents), metadata=metadata or self.token()
        )
        return answer.results

    async def text(self, uri: str, text: str, **more: object) -> pb.IngestResult:
        return (await self.ingest(pb.DocumentInput(source_uri=uri, text=text, **more)))[0]  # type: ignore[arg-type]  # as the message

    async def search(self, query: str, **more: object) -> pb.SearchKnowledgeResponse:
        request = pb.SearchKnowledgeRequest(query=query, **more)  # type: ignore[arg-type]  # as the message
        return await self.stub.SearchKnowledge(request, metadata=self.token())

    async def found(self, query: str, **more: object) -> list[str]:
        answer = await self.search(query, **more)
        return [f"{hit.document.source_uri}#{hit.section.anchor}" for hit in answer.hits if not hit.low]

    async def get(self, uri: str, **more: object) -> pb.GetDocumentResponse:
        request = pb.GetDocumentRequest(source_uri=uri, **more)  # type: ignore[arg-type]  # as the message
        return await self.stub.GetDocument(request, metadata=self.token())

    async def delete(self, uri: str) -> bool:
        request = pb.DeleteDocumentRequest(source_uri=uri)
        return (await self.stub.DeleteDocument(request, metadata=self.token())).deleted


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(clickhouse_engine: EmbeddedEngine, service_keys: Path) -> AsyncIterator[Served]:
    ch = EmbeddedClickHouse(clickhouse_engine, "knowledge", ClickHouseSettings(pool_size=4))
    await ch.start()
    deployment, llm = Deployment(service_keys), FakeLlm()
    harness = await memory_over(ch, directory=deployment.directory, llm=llm)
    async with (
        deployment.serving(harness.parts.knowledge.service()) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        yield Served(deployment, harness, llm, pb_grpc.KnowledgeServiceStub(channel))
    await harness.parts.knowledge.leftovers.close()
    await harness.parts.workers.close()
    await ch.command("DROP DATABASE knowledge SYNC")
    await ch.close()


@pytest.fixture
def served(shared: Served) -> Served:
    """The shared server, and an organisation of the test's own."""
    org = f"org-{next(_NUMBERS)}"
    for name in ("team", "default"):
        shared.deployment.directory.add(NamespaceInfo(org, name))
    shared.llm.fake = False
    shared.llm.asked.clear()
    return replace(shared, org=org)


async def test_a_document_goes_round(served: Served) -> None:
    stored = await served.text("docs/handbook.md", HANDBOOK, tags=["hr"])
    assert (stored.status, stored.version, stored.kind, stored.title) == ("stored", 1, "markdown", "Handbook")
    assert stored.embedding_pending == 0

    whole = await served.get("docs/handbook.md")
    assert (whole.found, whole.text, whole.HasField("next_offset")) == (True, HANDBOOK, False)
    assert whole.document.actor == "process:sa:bot"
    parts, offset = "", 0
    while True:
        part = await served.get("docs/handbook.md", offset=offset, limit=100)
        parts += part.text
        if not part.HasField("next_offset"):
            break
        offset = part.next_offset
    assert parts == HANDBOOK

    request = pb.ListDocumentSectionsRequest(source_uri="docs/handbook.md", page_size=3)
    sections: list[pb.DocumentSection] = []
    while True:
        outline = await served.stub.ListDocumentSections(request, metadata=served.token())
        sections += outline.sections
        if not outline.next_page_token:
            break
        request.page_token = outline.next_page_token
    assert [section.anchor for section in sections] == [
        "handbook", "contents", "leave", "holiday-allowance", "sick-leave", "pay", "pay-1", "license",
    ]  # fmt: skip
    assert "".join(HANDBOOK[section.start_offset : section.end_offset] for section in sections) == HANDBOOK
    for name in ("leave", "#leave", "Handbook > Leave", "Leave"):
        part = await served.get("docs/handbook.md", section=name)
        assert part.text == HANDBOOK[HANDBOOK.index("## Leave") : HANDBOOK.index("## Pay")]
    assert (await served.get("docs/handbook.md", section="pay-1")).text.endswith("June.\n\n")
    assert not (await served.get("docs/handbook.md", section="no such")).found
    assert not (await served.get("docs/none.md")).found

    inspected = await served.stub.InspectDocument(
        pb.InspectDocumentRequest(source_uri="docs/handbook.md"), metadata=served.token()
    )
    assert inspected.chunk_count == inspected.embedded_count > 0
    assert {count.noise: count.section_count for count in inspected.noise_counts} == {"contents": 1, "licence": 1}
    assert [version.version for version in inspected.versions] == [1]


async def test_a_search_finds_by_words_meaning_and_filters_and_puts_noise_below(served: Served) -> None:
    await served.text("docs/handbook.md", HANDBOOK, tags=["hr"])
    await served.text(
        "rules/coder.md", "# Rule\n\nThe agent coder books every holiday in the calendar.", tags=["agent:coder"]
    )
    await served.text(
        "src/pay.py", "def pay(days):\n    return days * 3\n\n\ndef bonus():\n    return 25\n", tags=["code"]
    )

    assert (await served.found("how many days of holiday"))[0] == "docs/handbook.md#holiday-allowance"
    assert (await served.found("when do I need a doctor's note"))[0] == "docs/handbook.md#sick-leave"
    assert await served.found("ZX-4417-Q") == ["docs/handbook.md#pay"]
    holiday = await served.found("holiday leave")
    assert holiday.index("docs/handbook.md#holiday-allowance") < holiday.index("docs/handbook.md#license")
    assert len(set(holiday)) == len(holiday)
    explained = await served.search("holiday leave", explain=True)
    demoted = [hit.why.demoted for hit in explained.hits if not hit.low]
    assert demoted == sorted(demoted)
    assert any(demoted)
    assert not any(hit.why.demoted for hit in (await served.search("which license", explain=True)).hits
                   if hit.section.anchor == "license")  # fmt: skip

    assert await served.found("bonus", kinds=["code"]) == ["src/pay.py#def-bonus"]
    assert all(uri.startswith("docs/") for uri in await served.found("holiday", source_prefix="docs/"))
    assert await served.found("holiday", tags=["code"]) == []
    coder = "rules/coder.md#rule"
    assert coder not in await served.found("book every holiday in the calendar")
    assert coder in await served.found("book every holiday in the calendar", agent="coder")
    assert coder in await served.found("book every holiday in the calendar", tags=["agent:coder"])
    assert coder not in await served.found("book every holiday in the calendar", agent="reviewer")

    for mode in ("lexical", "vector"):
        assert (await served.found("thirty days of holiday", search_mode=mode))[0].startswith(
            "docs/handbook.md#holiday"
        )
    nothing = await served.search("quantum chromodynamics")
    assert (list(nothing.hits), nothing.abstain_code) in [([], "no_match"), ([], "below_floor")]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.search("   ")
    assert reason_of(caught.value) == "INVALID_ARGUMENT"


async def test_a_fact_deep_in_a_long_text_and_words_of_two_characters_are_found(served: Served) -> None:
    filler = "The meeting went on about budgets and calendars. "
    deep = f"# Minutes\n\n{filler * 80}The vault opens with the word marmalade. {filler * 20}"
    await served.text("deep.md", deep)
    found = (await served.search("marmalade vault")).hits[0]
    assert "marmalade" in found.text
    assert deep[found.start_offset : found.end_offset] == found.text

    await served.text(
        "cjk.md", "# 说明\n\n## 配置 GOALS.md\n\n服务器使用 9router 连接数据库。\n\n## その他\n\n東京タワーの写真です。"
    )
    for query, anchor in (("数据库", "配置-goalsmd"), ("9router", "配置-goalsmd"), ("GOALS.md", "配置-goalsmd"),
                          ("東京", "その他")):  # fmt: skip
        assert (await served.found(query, search_mode="lexical"))[0] == f"cjk.md#{anchor}"


async def test_many_documents_are_stored_at_once_while_others_search(served: Served) -> None:
    async def store(number: int) -> str:
        return (await served.text(f"at-once/{number}.md", f"# N{number}\n\ngiraffe number{number}")).status

    async def look() -> None:
        for _ in range(5):
            await served.search("giraffe")

    *stored, _, _ = await asyncio.gather(*(store(number) for number in range(20)), look(), look())
    assert set(stored) == {"stored"}
    assert len(await served.found("giraffe", top_k=100)) == 20
    same = await asyncio.gather(*(served.text("same.md", f"# Same\n\ntext {number}") for number in range(5)))
    assert sorted(result.version for result in same) == [1, 2, 3, 4, 5]


async def test_a_reranker_orders_what_was_found_and_its_failure_leaves_the_order(served: Served) -> None:
    await served.text("a.md", "# A\n\nbread and butter and jam")
    await served.text("b.md", "# B\n\nbread and butter")
    plain = await served.search("bread and butter")
    order = [hit.document.source_uri for hit in plain.hits]
    texts = [f"{hit.section.breadcrumb}\n{hit.text}" for hit in plain.hits]
    served.llm.scores = {texts[0]: 0.1, texts[1]: 0.9}
    answer = await served.search("bread and butter", rerank="builtin:cohere", explain=True)
    assert [hit.document.source_uri for hit in answer.hits] == order[::-1]
    assert (answer.reranked_by, answer.hits[0].why.rerank_score) == ("builtin:cohere", 0.9)
    assert not (await served.search("bread and butter", rerank="none")).reranked_by

    async def fails(*args: object, **more: object) -> list[float]:
        raise ProviderFailed("It is away.")

    reranks, served.llm.rerank = served.llm.rerank, fails  # type: ignore[method-assign,assignment]  # this one call fails
    failed = await served.search("bread and butter", rerank="builtin:cohere")
    served.llm.rerank = reranks  # type: ignore[method-assign]  # as it was
    assert [hit.document.source_uri for hit in failed.hits] == order
    assert failed.rerank_failure == "PROVIDER_FAILED"


async def test_eleven_good_files_and_one_bad_one_give_eleven_and_a_named_one(served: Served) -> None:
    good = [pb.DocumentInput(source_uri=f"n/{n}.md", text=f"# Note {n}\n\nabout topic{n}") for n in range(11)]
    bad = pb.DocumentInput(source_uri="n/bad.txt", content=b"caf\xe9")
    answer = await served.stub.IngestDocuments(
        pb.IngestDocumentsRequest(documents=[*good[:5], bad, *good[5:]]), metadata=served.token()
    )
    assert (answer.stored_count, answer.unchanged_count, answer.refused_count) == (11, 0, 1)
    refused = answer.results[5]
    assert (refused.source_uri, refused.status, refused.reason) == ("n/bad.txt", "refused", "INVALID_ARGUMENT")
    assert "byte 3" in refused.message
    again = await served.ingest(*good)
    assert {result.status for result in again} == {"unchanged"}
    uris: list[str] = []
    request = pb.ListDocumentsRequest(page_size=4, source_prefix="n/")
    while True:
        page = await served.stub.ListDocuments(request, metadata=served.token())
        uris += [document.source_uri for document in page.documents]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert uris == sorted(document.source_uri for document in good)
    several = await served.ingest(
        pb.DocumentInput(source_uri="x", text="a", content=b"b"),
        pb.DocumentInput(text="no name"),
        pb.DocumentInput(url="https://example.com/a.md"),
        pb.DocumentInput(source_uri="t", text="x", tags=["t" * 65]),
    )
    assert [result.status for result in several] == ["refused"] * 4
    assert "LOOM_KNOWLEDGE_URL_ALLOWLIST" in several[2].message


def pieces(uri: str, content: bytes, size: int = 1 << 20, **more: object) -> Iterator[pb.UploadDocumentsRequest]:
    yield pb.UploadDocumentsRequest(document=pb.DocumentInput(source_uri=uri, **more))  # type: ignore[arg-type]  # as the message
    for first in range(0, len(content), size):
        yield pb.UploadDocumentsRequest(piece=content[first : first + size], last=first + size >= len(content))


def bomb() -> bytes:
    """A DOCX of some kilobytes that unpacks to 140 MiB, and more is refused."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("word/document.xml", "w") as member:
        for _ in range(140):
            member.write(b" " * (1 << 20))
    return held.getvalue()


async def test_an_upload_tells_its_stages_and_loses_nothing_for_a_bomb_or_a_long_file(
    served: Served,
) -> None:
    async def sent() -> AsyncIterator[pb.UploadDocumentsRequest]:
        for request in pieces("up/a.md", HANDBOOK.encode(), 300):
            yield request
        for request in pieces("up/bomb.docx", bomb()):
            yield request
        block = b"x" * (4 << 20)
        yield pb.UploadDocumentsRequest(document=pb.DocumentInput(source_uri="up/long.txt"))
        for number in range(9):
            yield pb.UploadDocumentsRequest(piece=block, last=number == 8)
        for request in pieces("up/z.html", b"<h1>Zebra</h1><p>striped animals"):
            yield request
        yield pb.UploadDocumentsRequest(document=pb.DocumentInput(source_uri="up/cut.md"), piece=b"half")

    stages: dict[str, list[str]] = {}
    results: dict[str, pb.IngestResult] = {}
    async for progress in served.stub.UploadDocuments(sent(), metadata=served.token()):
        stages.setdefault(progress.source_uri, []).append(progress.stage)
        if progress.HasField("result"):
            results[progress.source_uri] = progress.result
    assert {uri: result.status for uri, result in results.items()} == {
        "up/a.md": "stored",
        "up/bomb.docx": "refused",
        "up/long.txt": "refused",
        "up/z.html": "stored",
        "up/cut.md": "refused",
    }
    assert stages["up/a.md"] == ["received", "converted", "embedding", "done"]
    assert results["up/bomb.docx"].reason == results["up/long.txt"].reason == "PAYLOAD_TOO_LARGE"
    assert "37,748,736" in results["up/long.txt"].message
    assert await served.found("striped animals") == ["up/z.html#zebra"]


async def test_an_upload_that_names_another_namespace_on_its_way_stores_nothing_under_the_first(served: Served) -> None:
    def sent() -> Iterator[pb.UploadDocumentsRequest]:
        yield from pieces("up/astray.md", b"first")
        yield pb.UploadDocumentsRequest(namespace="other", document=pb.DocumentInput(source_uri="up/elsewhere.md"))
        yield pb.UploadDocumentsRequest(piece=b"x", last=True)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in served.stub.UploadDocuments(sent(), metadata=served.token()):
            pass
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not (await served.get("up/elsewhere.md")).found


async def test_readers_see_the_old_version_or_the_new_one_whole_while_it_is_replaced(served: Served) -> None:
    def version(number: int) -> str:
        return "\n".join(f"## Part {part}\n\nversion {number} of part {part}, amber\n" for part in range(30))

    await served.text("r.md", version(0))
    wholes = {version(number) for number in range(5)}
    done = asyncio.Event()
    seen: list[str] = []

    async def read() -> None:
        while not done.is_set():
            got = await served.get("r.md", limit=64_000)
            assert got.text in wholes
            seen.append(got.text)
            hits = (await served.search("amber", top_k=100)).hits
            assert len(hits) == 30
            assert len({hit.document.version for hit in hits}) == 1

    reading = asyncio.create_task(read())
    for number in range(1, 5):
        assert (await served.text("r.md", version(number))).version == number + 1
    done.set()
    await reading
    assert seen
    leftovers = served.harness.parts.knowledge.leftovers
    async with Leases(served.harness.ch, "memory").taken("knowledge.sweep", 60) as lease:
        assert lease is not None
        scope = Scope(served.org, "team")
        newest = await served.harness.parts.knowledge.reader.document(scope, "r.md")
        assert newest is not None
        # Replaced within the grace: who began with the version before still reads it, however old that one is.
        assert not await leftovers._leftovers.stale(scope, newest.version, 10)
        assert len(await leftovers._leftovers.stale(scope, newest.version + 1, 10)) == 4
        # What other tests left may be swept as well; of this document it is four versions.
        leftovers._grace_ns = -(10**12)
        assert await leftovers.sweep(lease) >= 4
        leftovers._grace_ns = GRACE_NS
    assert (await served.get("r.md", limit=64_000)).text == version(4)


async def test_a_deleted_document_is_gone_from_every_read_at_once_and_may_come_again(served: Served) -> None:
    await served.text("d.md", HANDBOOK)
    assert await served.delete("d.md")
    assert not await served.delete("d.md")
    assert not (await served.get("d.md")).found
    assert not (await served.stub.ListDocuments(pb.ListDocumentsRequest(), metadata=served.token())).documents
    for mode in ("hybrid", "lexical", "vector"):
        gone = await served.search("thirty days of holiday", search_mode=mode)
        assert (list(gone.hits), gone.abstain_code) == ([], "empty_namespace")
    await served.harness.parts.knowledge.leftovers.flush()
    assert (await served.text("d.md", HANDBOOK)).version == 2
    assert await served.found("thirty days of holiday", search_mode="vector")
    inspected = await served.stub.InspectDocument(pb.InspectDocumentRequest(source_uri="d.md"), metadata=served.token())
    assert [version.version for version in inspected.versions] == [2]


async def test_nobody_sees_or_changes_a_document_of_another_organisation_or_namespace(served: Served) -> None:
    places = {
        "own/team": served.token("team:writer"),
        "own/default": served.token("default:writer"),
        "umbra/team": served.token("team:writer", org="umbra"),
    }
    for place, metadata in places.items():
        document = pb.DocumentInput(source_uri="secret.md", text=f"# Secret\n\nthe merger of {place} closes in March")
        assert (await served.ingest(document, metadata=metadata))[0].status == "stored"
    for place, metadata in places.items():
        answers: list[object] = [
            await served.stub.GetDocument(pb.GetDocumentRequest(source_uri="secret.md"), metadata=metadata),
            await served.stub.ListDocuments(pb.ListDocumentsRequest(), metadata=metadata),
            await served.stub.InspectDocument(pb.InspectDocumentRequest(source_uri="secret.md"), metadata=metadata),
        ]
        for mode in ("hybrid", "lexical", "vector"):
            request = pb.SearchKnowledgeRequest(query="merger closes in March", search_mode=mode, top_k=100)
            found = await served.stub.SearchKnowledge(request, metadata=metadata)
            assert len(found.hits) == 1
            answers.append(found)
        for answer in answers:
            shown = str(answer)
            assert not any(f"the merger of {other} " in shown for other in places if other != place)
    assert (
        await served.stub.DeleteDocument(pb.DeleteDocumentRequest(source_uri="secret.md"), metadata=places["own/team"])
    ).deleted
    for place in ("own/default", "umbra/team"):
        got = await served.stub.GetDocument(pb.GetDocumentRequest(source_uri="secret.md"), metadata=places[place])
        assert place in got.text
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.stub.GetDocument(
            pb.GetDocumentRequest(source_uri="secret.md", namespace="default"), metadata=places["own/team"]
        )
    assert reason_of(caught.value) in ("AUTH_INSUFFICIENT", "NOT_FOUND")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.ingest(pb.DocumentInput(source_uri="x", text="y"), metadata=served.token("team:viewer"))
    assert reason_of(caught.value) == "AUTH_INSUFFICIENT"


async def test_a_document_is_stored_while_embedding_is_away_and_gets_its_vectors_later(served: Served) -> None:
    embedding, plane = served.harness.embedding, served.harness.parts.knowledge
    for refusal in (BackendUnavailable("away"), ModelCallsOff("off")):
        embedding.refusal = refusal
        stored = await served.text(f"{refusal.reason}.md", "# Later\n\nwhales sing at night")
        assert (stored.status, stored.embedding_pending) == ("stored", 1)
    embedding.refusal = None
    waiting = await served.search("whales sing")
    assert waiting.embedding_pending == 2
    assert len(waiting.hits) == 2
    assert await served.found("whales sing", search_mode="vector") == []
    assert await plane.missing_vectors.take_turn() == 2
    assert await plane.missing_vectors.take_turn() == 0
    assert len(await served.found("whales sing", search_mode="vector")) == 2
    embedding.poison = {"orca"}
    mixed = await served.text("mixed.md", "# One\n\norca song\n\n# Two\n\nseal song")
    assert mixed.embedding_pending == 1
    assert await plane.missing_vectors.take_turn() == 0
    embedding.poison = set()


async def test_a_change_of_the_embedder_takes_documents_along(served: Served) -> None:
    scope, ch = Scope(served.org, "team"), served.harness.ch
    before = await memory_over(ch, FakeEmbedding(model="old", dim=64))
    await before.parts.knowledge.ingestion.ingest(scope, Source("a.md", HANDBOOK.encode()), "human:ana")
    after = await memory_over(ch, FakeEmbedding(model="new", dim=32))
    by_meaning = KnowledgeQuery("thirty days of holiday", mode=SearchMode.VECTOR)
    blind = await after.parts.knowledge.search.search(scope, by_meaning)
    assert (list(blind.hits), blind.abstained) == ([], "embedder_changed")
    for options in (ReembedOptions(served.org, staged=True), ReembedOptions(served.org, delete_old=True)):
        progresses = [progress async for progress in after.parts.reembedding.run(options)]
        assert progresses[-1].finished
        assert progresses[-1].failed == progresses[-1].withheld == 0
    assert (await after.parts.knowledge.search.search(scope, by_meaning)).hits
    rows = await ch.query(
        "SELECT DISTINCT embedding_model FROM knowledge_embeddings WHERE org = {org:String}", {"org": served.org}
    )
    assert [row[0] for row in rows] == ["new"]


async def test_a_synthesis_is_stored_with_the_citations_that_hold(served: Served) -> None:
    await served.text("docs/handbook.md", HANDBOOK)
    holds = DocumentCitation("docs/handbook.md", "Handbook > Leave > Holiday allowance")
    invented = DocumentCitation("docs/handbook.md", "Handbook > Moon base")
    elsewhere = DocumentCitation("docs/other.md", "Handbook > Leave")
    served.llm.script(f"# Leave\n\nThirty days {holds}. On the moon {invented}. Elsewhere {elsewhere}.")
    request = pb.SynthesizeDocumentRequest(
        source_uris=["docs/handbook.md"], instruction="How much leave?", tags=["made"]
    )
    written = await served.stub.SynthesizeDocument(request, metadata=served.token())
    assert (written.stored, written.version) == (True, 1)
    assert [(citation.verified, citation.reason) for citation in written.citations] == [
        (True, ""),
        (False, "no_such_section"),
        (False, "no_such_document"),
    ]
    assert written.text == f"# Leave\n\nThirty days {holds}. On the moon. Elsewhere."
    asked = served.llm.asked[0].user
    assert "thirty days of holiday" in asked
    kept = await served.get(written.source_uri)
    assert (kept.text, list(kept.document.derived_from)) == (written.text, ["docs/handbook.md"])

    served.llm.script("# Leave\n\nNobody knows.")
    assert (await served.stub.SynthesizeDocument(request, metadata=served.token())).reason == "no_citations"
    served.llm.fake = True
    assert (await served.stub.SynthesizeDocument(request, metadata=served.token())).reason == "no_model"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.stub.SynthesizeDocument(
            pb.SynthesizeDocumentRequest(source_uris=["none.md"]), metadata=served.token()
        )
    assert reason_of(caught.value) == "NOT_FOUND"


async def test_a_search_finds_the_newest_version_of_a_document_that_is_replaced_again_and_again_meanwhile(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.text("meanwhile.md", "# Tide\n\ntide 0 is obsidian")
    sections = served.harness.parts.knowledge.search._sections  # the search's own, to come between its reads
    read, numbers = sections.of_places, iter(range(1, 5))

    async def of_places(scope: Scope, places: Sequence[tuple[str, int, int]]) -> object:
        if number := next(numbers, 0):
            await served.text("meanwhile.md", f"# Tide\n\ntide {number} is obsidian")
        return await read(scope, places)

    monkeypatch.setattr(sections, "of_places", of_places)
    assert [hit.text for hit in (await served.search("obsidian tide", top_k=5)).hits] == [
        "# Tide\n\ntide 4 is obsidian"
    ]
