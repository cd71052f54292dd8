"""Files of other systems: what becomes of each, and that no file does harm."""

import io
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_cli.importers.converting import KINDS, Converted, convert
from loom_cli.importers.items import BadFile
from loom_cli.importers.reading import values

EXPORTS = Path(__file__).parents[2] / "support" / "exports"


def converted(kind: str, file: Path, *, user: str = "", as_memories: bool = False) -> Converted:
    return convert(kind, file, io.BytesIO, user=user, as_memories=as_memories)


def memories(found: Converted) -> dict[str, dict[str, Any]]:
    """Returns the lines by what they say."""
    lines = [json.loads(line) for line in found.memory_lines()]
    return {line["value"]: line for line in lines}


def counts(found: Converted) -> tuple[int, int, int, int]:
    assert found.read == len(found.wheres) + found.turns + len(found.refused) + found.skipped.total()
    return len(found.wheres), found.turns, len(found.refused), found.skipped.total()


def test_mem0_memories_keep_who_they_are_about_and_their_history() -> None:
    found = converted("mem0", EXPORTS / "mem0.json", user="nobody")
    told = memories(found)
    tea, train = told["Ana drinks green tea in the morning"], told["The release train leaves on Thursdays"]
    assert (tea["user_id"], tea["agent"], tea["speaker"], tea["tags"]) == ("ana", "helper", "user", ["mem0", "drinks"])
    assert tea["key"] == "mem0-7a1c1a52-0b5e-4c0a-9a52-3f4c1f7d2a01"
    assert [(one["value"], one["created_at"]) for one in tea["versions"]] == [
        ("Ana drinks black tea", "2025-03-01T08:00:00+00:00")
    ]
    assert (tea["version"], tea["updated_at"]) == (2, "2025-03-05T08:00:00+00:00")
    assert (train["session_id"], train["speaker"], train["expires_at"]) == ("run-7", "Ben", "2199-01-31T00:00:00Z")
    assert counts(found) == (2, 0, 0, 1)
    assert found.skipped == {"deleted in mem0": 1}


def test_mem0_takes_lists_lines_relations_and_history_alone(tmp_path: Path) -> None:
    whole = json.loads((EXPORTS / "mem0.json").read_text())
    (tmp_path / "list.json").write_text(json.dumps(whole["results"]))
    assert counts(converted("mem0", tmp_path / "list.json")) == (2, 0, 0, 0)
    (tmp_path / "lines.jsonl").write_text("\n".join(json.dumps(row) for row in whole["results"]))
    assert counts(converted("mem0", tmp_path / "lines.jsonl")) == (2, 0, 0, 0)
    (tmp_path / "history.json").write_text(json.dumps(whole["history"]))
    told = memories(converted("mem0", tmp_path / "history.json", user="ana"))
    assert told["Ana drinks green tea in the morning"]["versions"][0]["value"] == "Ana drinks black tea"
    assert told["Ana drinks green tea in the morning"]["user_id"] == "ana"
    graph = {
        "results": [],
        "relations": [{"source": "ana", "relationship": "lives_in", "target": "porto"}, {"source": "x"}],
    }
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    found = converted("mem0", tmp_path / "graph.json")
    assert list(memories(found)) == ["ana lives in porto"]
    assert [one.where for one in found.refused] == ["relations 2"]


def test_zep_facts_keep_when_they_held_and_what_they_come_from() -> None:
    found = converted("zep", EXPORTS / "zep.json")
    told = memories(found)
    lives = told["Ana lives in Porto"]
    assert (lives["valid_at"], lives["invalid_at"]) == ("2024-05-01T00:00:00Z", "2025-06-01T00:00:00Z")
    assert lives["derived_from"] == [told["Ana: I moved to Porto last May"]["key"]]
    assert (lives["kind"], lives["tags"], lives["source"]) == ("fact", ["zep", "LIVES_IN"], "zep: team")
    assert told["Ana: I moved to Porto last May"]["event_time"] == "2025-01-01T10:30:00Z"
    assert told["Ana: Ana leads the platform team."]["tags"] == ["zep", "Person"]
    assert "invalid_at" not in told["Ana visits Porto in spring"]
    assert counts(found) == (4, 0, 0, 1)
    assert found.skipped == {"a node without a summary": 1}


def test_mcp_memory_gives_a_memory_for_each_observation_and_relation() -> None:
    found = converted("mcp-memory", EXPORTS / "mcp_memory.jsonl")
    told = memories(found)
    assert list(told) == [
        "Ana: drinks green tea",
        "Ana: leads the platform team",
        "Platform team: team",
        "Ana works in Platform team",
    ]
    assert len({line["key"] for line in told.values()}) == 4
    assert found.wheres[1] == "line 1 (Ana), observation 2"
    assert [line["kind"] for line in told.values()] == ["fact", "fact", "entity", "fact"]


def test_letta_blocks_and_passages_are_memories_and_messages_a_conversation() -> None:
    found = converted("letta", EXPORTS / "letta.af")
    told = memories(found)
    assert told["First name: Ana"]["key"] == "letta-helper-block-human"
    assert told["First name: Ana"]["pinned"] is True
    (held,) = found.held_conversations()
    assert (held.conversation_id, held.agent) == ("letta-helper", "helper")
    assert [(turn["role"], turn["text"]) for turn in held.turns] == [
        ("user", "I drink green tea"),
        ("assistant", "Noted: green tea."),
        ("user", "When do we release?"),
        ("assistant", "On Thursdays."),
    ]
    assert found.skipped == {
        "a message of the system": 1,
        "a message of the tool": 1,
        "a message of the harness": 1,
        "an empty block": 1,
    }
    passages = converted("letta", EXPORTS / "letta_passages.json")
    line = memories(passages)["The release train leaves on Thursdays"]
    assert (line["created_at"], line["tags"]) == ("2025-11-05T23:04:24.901468+00:00", ["letta", "release"])
    assert passages.skipped == {"deleted in Letta": 1}


def test_letta_takes_the_older_form_of_agent_files(tmp_path: Path) -> None:
    file = json.loads((EXPORTS / "letta.af").read_text())
    (agent,) = file["agents"]
    old = {"name": "helper", "core_memory": file["blocks"], "messages": agent["messages"], "version": "0.7.1"}
    (tmp_path / "old.af").write_text(json.dumps(old))
    now, before = converted("letta", EXPORTS / "letta.af"), converted("letta", tmp_path / "old.af")
    assert memories(now) == memories(before)
    assert [one.turns for one in now.held_conversations()] == [one.turns for one in before.held_conversations()]


def test_chatgpt_gives_the_branch_that_was_open_and_counts_the_rest() -> None:
    found = converted("chatgpt", EXPORTS / "chatgpt.json")
    (held,) = found.held_conversations()
    assert (held.conversation_id, held.title) == ("0c0ffee0-aaaa-4000-8000-000000000001", "Release train")
    assert [(turn["turn_id"], turn["role"], turn["text"]) for turn in held.turns] == [
        ("n1", "user", "When does the release train leave?"),
        ("n2", "assistant", "On Thursdays."),
        ("n3", "user", "What is on this picture?"),
        ("n6", "assistant", "A timetable."),
    ]
    assert held.turns[0]["at"] == "2025-03-01T08:00:00.250Z"
    assert counts(found) == (0, 4, 0, 4)


def test_claude_gives_what_was_said_without_thinking_and_tools() -> None:
    found = converted("claude", EXPORTS / "claude.json")
    (held,) = found.held_conversations()
    assert [(turn["role"], turn["text"]) for turn in held.turns] == [
        ("user", "Which tea do I drink?"),
        ("assistant", "Green tea.\n\nIn the morning."),
    ]
    assert found.skipped == {"a message without text": 1, "a conversation without text": 1}


def test_messages_become_memories_where_that_is_asked() -> None:
    found = converted("claude", EXPORTS / "claude.json", user="ana", as_memories=True)
    line = memories(found)["Which tea do I drink?"]
    assert counts(found) == (2, 0, 0, 2)
    assert (line["session_id"], line["user_id"]) == ("5f1e0000-0000-4000-8000-000000000001", "ana")
    assert (line["speaker"], line["event_time"]) == ("user", "2025-03-01T08:00:00.000000Z")
    again = converted("claude", EXPORTS / "claude.json", user="ana", as_memories=True)
    assert list(found.memory_lines()) == list(again.memory_lines())


def zipped(target: Path, files: Iterable[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return target


def test_an_export_is_read_out_of_its_zip_in_one_file_or_in_parts(tmp_path: Path) -> None:
    content = (EXPORTS / "chatgpt.json").read_bytes()
    other = ("user.json", b"{}")
    one = zipped(tmp_path / "one.zip", [other, ("export/conversations.json", content), ("chat.html", b"<p>")])
    assert counts(converted("chatgpt", one)) == (0, 4, 0, 4)
    parts = zipped(tmp_path / "parts.zip", [other, *((f"conversations-{at:03}.json", content) for at in range(2))])
    assert counts(converted("chatgpt", parts)) == (0, 8, 0, 8)


def test_a_file_that_is_not_whole_or_not_of_its_kind_is_told_and_nothing_is_taken(tmp_path: Path) -> None:
    whole = (EXPORTS / "claude.json").read_bytes()
    bomb = zipped(tmp_path / "bomb.zip", [("conversations.json", b"[" + b" " * 40_000_000 + b"]")])
    damaged = zipped(tmp_path / "x.zip", [("conversations.json", whole)]).read_bytes()
    cases = {
        "cut": whole[:-40],
        "cut in a text": whole[:200],
        "empty": b"",
        "spaces": b" \n ",
        "nul": whole.replace(b"Green", b"Gr\0en"),
        "latin": whole.replace(b"Green", b"Gr\xe9en"),
        "deep": b"[" * 200_000,
        "constant": b'[{"chat_messages": NaN}]',
        "long number": b"[" + b"9" * 10_000 + b"]",
        "other kind": (EXPORTS / "zep.json").read_bytes(),
        "a number": b"5",
        "more behind": whole + b"[]",
        "no comma": b"[{} {}]",
        "binary": bytes(range(1, 256)) * 10,
        "zip bomb": bomb.read_bytes(),
        "zip of another": zipped(tmp_path / "y.zip", [("a.txt", b"")]).read_bytes(),
        "damaged zip": damaged[:60] + b"\xff" * 40 + damaged[100:],
    }
    for name, content in cases.items():
        file = tmp_path / "given"
        file.write_bytes(content)
        with pytest.raises(BadFile) as caught:
            converted("claude", file)
        assert len(str(caught.value)) < 300, name


def test_a_value_longer_than_a_piece_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "long.json"
    long = [{"id": str(number), "memory": "é" * 700_000} for number in range(3)]
    file.write_text(json.dumps(long, ensure_ascii=False), encoding="utf-8")
    assert [value for _, value in values(file)] == long


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = [
    "id", "uuid", "memory", "memory_id", "event", "results", "history", "relations", "fact",
    "content", "summary", "nodes", "type", "name", "observations", "from", "relationType", "agents",
    "blocks", "block_ids", "messages", "role", "text", "tool_calls", "mapping", "current_node", "message",
    "author", "parts", "parent", "children", "conversation_id", "create_time", "created_at", "chat_messages", "sender",
    "core_memory", "passages", "tags", "new_memory", "value",
]  # fmt: skip
words = st.sampled_from(["entity", "relation", "user", "human", "assistant", "n1", "DELETE", "2025-01-01"])
shaped = st.recursive(
    json_values | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(shaped, max_size=3))
def test_whatever_json_a_file_holds_each_kind_counts_or_refuses_it(found_values: list[object]) -> None:
    for kind in KINDS:
        for as_memories in (False, True):
            with Converted(io.BytesIO(), io.BytesIO()) as found:
                for item in KINDS[kind].items((f"item {at}", value) for at, value in enumerate(found_values)):
                    found.add(item, kind, "", as_memories=as_memories)
                counts(found)
                assert len(list(found.memory_lines())) == len(found.wheres)
                assert sum(len(one.turns) for one in found.held_conversations()) == found.turns


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=40) | st.text('[]{},:"1e.-\\\\u tnaN', max_size=30).map(str.encode))
def test_whatever_bytes_a_file_holds_it_is_json_or_told_not_to_be(content: bytes, tmp_path_factory: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "given.json"
    file.write_bytes(content)
    try:
        found = [value for _, value in values(file)]
    except BadFile:
        return
    read = json.JSONDecoder(strict=True).raw_decode(content.decode("utf-8-sig").lstrip(" \t\r\n"))[0]
    assert found == read if isinstance(read, list) else found[0] == read
