"""LangGraph's store over a running Loom, with the real package; `integrations/langgraph` says how to install it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.up import UpProcess

from loom_client import Loom

BASE = pytest.importorskip(
    "langgraph.store.base", reason="LangGraph is not installed: `pip install langgraph` in this environment tries it"
)
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integrations" / "langgraph"))
from loom_langgraph import LoomStore  # noqa: E402  # found by the line above


@pytest.fixture
def loom(up: UpProcess) -> Iterator[Loom]:
    with Loom(up.http_url, up.token) as client:
        yield client


def values(items: list[Any]) -> list[Any]:
    return [item.value for item in items]


def test_items_are_put_read_found_by_meaning_and_deleted(loom: Loom) -> None:
    store = LoomStore(loom, user_of=lambda namespace: namespace[1] if namespace[0] == "memories" else "")
    ana, ben = ("memories", "ana"), ("memories", "ben")
    store.put(ana, "tea", {"text": "Ana drinks green tea in the morning", "kind": "drink", "rank": 2})
    store.put(ana, "train", {"text": "Ana takes the train to work", "kind": "travel", "rank": 5})
    store.put(ben, "tea", {"text": "Ben drinks black coffee", "kind": "drink", "rank": 9})
    item = store.get(ana, "tea")
    assert item is not None
    assert (item.namespace, item.key, item.value["rank"]) == (ana, "tea", 2)
    assert item.created_at.tzinfo is not None
    assert loom.memory.list(user_id="ben").memories[0].source == "langgraph"
    found = store.search(ana, query="what does Ana like to drink?", limit=2)
    assert found[0].key == "tea"
    assert 0 < (found[0].score or 0) <= 1
    assert {hit.namespace for hit in store.search(("memories",), query="who drinks what?")} == {ana, ben}
    drinks = store.search(("memories",), query="who drinks what?", filter={"kind": "drink", "rank": {"$gte": 3}})
    assert [hit.key for hit in drinks] == ["tea"]
    assert drinks[0].namespace == ben
    assert len(store.search(("memories",), limit=2)) == 2
    assert len(store.search(("memories",), limit=2, offset=2)) == 1
    store.put(ana, "tea", {"text": "Ana drinks coffee now"})
    again = store.get(ana, "tea")
    assert again is not None
    assert again.value == {"text": "Ana drinks coffee now"}
    assert again.created_at == item.created_at < again.updated_at
    store.delete(ana, "tea")
    assert store.get(ana, "tea") is None
    assert store.get(ben, "tea") is not None


def test_namespaces_are_listed_as_the_package_lists_its_own(loom: Loom) -> None:
    memory = pytest.importorskip("langgraph.store.memory").InMemoryStore()
    store = LoomStore(loom)
    spaces = [("list", "a", "x"), ("list", "a", "y"), ("list", "b", "x"), ("list", "b/c", "ü%2F"), ("list",)]
    for one in (memory, store):
        for space in spaces:
            one.put(space, "k/1", {"at": "/".join(space)})
    for asked in (
        {"prefix": ("list",)},
        {"prefix": ("list",), "suffix": ("x",)},
        {"prefix": ("list", "*", "x")},
        {"prefix": ("list",), "max_depth": 2},
        {"prefix": ("list",), "limit": 2, "offset": 1},
    ):
        assert store.list_namespaces(**asked) == memory.list_namespaces(**asked), asked
    for space in spaces:
        mine, theirs = store.get(space, "k/1"), memory.get(space, "k/1")
        assert (mine.value, mine.namespace, mine.key) == (theirs.value, theirs.namespace, theirs.key)


async def test_a_batch_reads_before_it_writes_and_its_last_write_of_a_key_wins(loom: Loom) -> None:
    store = LoomStore(loom)
    space = ("batch",)
    await store.aput(space, "k", {"n": 0})
    put = [BASE.PutOp(space, "k", {"n": 1}), BASE.PutOp(space, "k", {"n": 2}), BASE.PutOp(space, "gone", None)]
    results = await store.abatch([*put, BASE.GetOp(space, "k"), BASE.SearchOp(space)])
    assert results[:3] == [None, None, None]
    assert results[3].value == {"n": 0}
    assert values(results[4]) == [{"n": 0}]
    item = await store.aget(space, "k")
    assert item is not None
    assert item.value == {"n": 2}
    await store.adelete(space, "k")
    assert await store.asearch(space) == []


def test_what_the_package_refuses_is_refused_and_long_hidden_and_passing_items_are_kept_so(loom: Loom) -> None:
    store = LoomStore(loom, ttl={"default_ttl": 60, "refresh_on_read": False})
    with pytest.raises(BASE.InvalidNamespaceError):
        store.put(("a.b",), "k", {})
    with pytest.raises(ValueError, match="INVALID_ARGUMENT"):
        store.put(("odd",), "k", {"text": "x" * 70_000})
    long = {"text": "the harbour master counts ships. " * 1_000}
    store.put(("odd",), "long", long)
    store.put(("odd",), "hidden", {"text": "the harbour master counts ships by night"}, index=False)
    assert {item.key for item in store.search(("odd",))} == {"long", "hidden"}
    assert next(item for item in store.search(("odd",)) if item.key == "long").value == long
    assert [item.key for item in store.search(("odd",), query="who counts ships?")] == ["long"]
    [memory] = [one for one in loom.memory.list_all(tags=["langgraph"]) if one.key == "lg/odd/long"]
    assert memory.expires_at > memory.updated_at


def test_a_graph_remembers_across_threads(loom: Loom) -> None:
    graph = pytest.importorskip("langgraph.graph")
    runtime = pytest.importorskip("langgraph.runtime")
    space = ("graph", "ana")

    def remember(state: dict[str, Any], runtime: "runtime.Runtime[Any]") -> dict[str, Any]:
        found = runtime.store.search(space, query=state["said"], limit=1)
        runtime.store.put(space, state["said"], {"text": state["said"]})
        return {"said": found[0].value["text"] if found else "nothing yet"}

    remember.__annotations__["runtime"] = runtime.Runtime
    builder = graph.StateGraph(dict)
    builder.add_node("remember", remember)
    builder.add_edge(graph.START, "remember")
    app = builder.compile(store=LoomStore(loom))
    assert app.invoke({"said": "Ana keeps bees"}) == {"said": "nothing yet"}
    assert app.invoke({"said": "which animals does Ana keep?"}) == {"said": "Ana keeps bees"}


def test_the_example_of_its_page_runs(
    up: UpProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOOM_BASE_URL", up.http_url)
    monkeypatch.setenv("LOOM_API_KEY", up.token)
    page = Path(__file__).resolve().parents[2] / "integrations" / "langgraph" / "README.md"
    example = page.read_text("utf-8").split("```python\n")[1].split("```")[0]
    exec(compile(example, page.name, "exec"), {"__name__": "example"})
    assert "tea Ana drinks green tea in the morning" in capsys.readouterr().out
