"""mem0: what `get_all` answers, of the library and of the platform, and the rows that `history` answers.

A file is a list of either, an object with lists of them (`results`, `memories`, `relations`, `history`), or lines.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from loom_cli.importers.items import Item, MemoryItem, Refused, Skipped, key_of, tags_of
from loom_cli.importers.values import fields, first_text, listed, text, texts, time_text

_KIND: Final = "mem0"
_LISTS: Final = ("results", "memories", "relations", "history")


def items(values: Iterable[tuple[str, object]]) -> Iterator[Item]:
    """Yields what the values of a file hold; what history there is of a memory becomes its earlier versions."""
    memories: list[tuple[str, Mapping[str, object]]] = []
    history: dict[str, list[Mapping[str, object]]] = {}
    for where, row in _rows(values):
        if "event" in row and "memory_id" in row:
            history.setdefault(text(row["memory_id"]), []).append(row)
        elif "relationship" in row and "source" in row:
            yield _relation(where, row)
        elif "memory" in row or "data" in row or "text" in row:
            memories.append((where, row))
        else:
            yield Refused(where, "is neither a memory, nor a relation, nor a row of history")
    for where, row in memories:
        yield _memory(where, row, history.pop(text(row.get("id")), []))
    for memory_id, rows in history.items():
        yield _from_history(memory_id, rows)


def _rows(values: Iterable[tuple[str, object]]) -> Iterator[tuple[str, Mapping[str, object]]]:
    for where, value in values:
        row = fields(value)
        held = [name for name in _LISTS if isinstance(row.get(name), list)]
        if held and "memory" not in row:
            for name in held:
                yield from ((f"{name} {at}", fields(one)) for at, one in enumerate(listed(row[name]), 1))
        else:
            yield where, row


def _memory(where: str, row: Mapping[str, object], history: list[Mapping[str, object]]) -> Item:
    memory_id = text(row.get("id"))
    value = first_text(row, "memory", "data", "text")
    where = f"{where} ({memory_id})" if memory_id else where
    if not value:
        return Refused(where, "has no text")
    metadata = fields(row.get("metadata"))
    record: dict[str, object] = {
        "value": value,
        "user_id": first_text(row, "user_id"),
        "session_id": first_text(row, "run_id"),
        "agent": first_text(row, "agent_id"),
        "speaker": first_text(row, "actor_id", "role"),
        "tags": tags_of(_KIND, *texts(row.get("categories")), text(metadata.get("category"))),
        "created_at": time_text(row.get("created_at")),
        "updated_at": time_text(row.get("updated_at")) or time_text(row.get("created_at")),
        "expires_at": time_text(row.get("expiration_date")),
        "source": _KIND,
    }
    if memory_id:
        record["key"] = key_of(_KIND, memory_id)
        earlier = [version for version in _versions(history) if version["value"] != value]
        if earlier:
            record |= {"versions": earlier, "version": len(earlier) + 1}
    return MemoryItem(where, record)


def _from_history(memory_id: str, rows: list[Mapping[str, object]]) -> Item:
    where = f"history of {memory_id or 'no memory'}"
    if not memory_id:
        return Refused(where, "names no memory")
    ordered = sorted(rows, key=_when)
    if text(ordered[-1].get("event")).upper() == "DELETE":
        return Skipped(where, "deleted in mem0")
    versions = _versions(ordered)
    if not versions:
        return Refused(where, "has no text")
    last = versions[-1]
    row: dict[str, object] = {"id": memory_id, "memory": last["value"], "updated_at": last["updated_at"]}
    row["created_at"] = versions[0]["created_at"]
    row |= {name: ordered[-1].get(name) for name in ("actor_id", "role")}
    return _memory(where, row, ordered)


def _versions(rows: list[Mapping[str, object]]) -> list[dict[str, str]]:
    told = []
    for row in sorted(rows, key=_when):
        value = text(row.get("new_memory"))
        if value.strip():
            created = time_text(row.get("created_at"))
            updated = time_text(row.get("updated_at")) or created
            told.append({"value": value, "created_at": created, "updated_at": updated})
    return told


def _when(row: Mapping[str, object]) -> str:
    return time_text(row.get("updated_at")) or time_text(row.get("created_at"))


def _relation(where: str, row: Mapping[str, object]) -> Item:
    parts = [first_text(row, "source"), first_text(row, "relationship"), first_text(row, "target", "destination")]
    if not all(parts):
        return Refused(where, "is a relation without both ends and a name")
    said = " ".join([parts[0], parts[1].replace("_", " "), parts[2]])
    key = key_of(f"{_KIND}-relation", *parts)
    return MemoryItem(where, {"key": key, "value": said, "kind": "fact", "tags": tags_of(_KIND), "source": _KIND})
