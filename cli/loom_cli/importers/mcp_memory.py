"""The MCP reference memory server: its file of lines, entities with observations and relations between them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from loom_cli.importers.items import Item, MemoryItem, Refused, key_of, tags_of
from loom_cli.importers.values import fields, first_text, listed, text

_KIND: Final = "mcp-memory"


def items(values: Iterable[tuple[str, object]]) -> Iterator[Item]:
    """Yields a memory for each observation and each relation, and one for each entity that has no observation."""
    for where, row in _rows(values):
        kind = row.get("type")
        if kind == "entity" or "entityType" in row:
            yield from _entity(where, row)
        elif kind == "relation" or "relationType" in row:
            yield _relation(where, row)
        else:
            yield Refused(where, "is neither an entity nor a relation")


def _rows(values: Iterable[tuple[str, object]]) -> Iterator[tuple[str, Mapping[str, object]]]:
    for where, value in values:
        row = fields(value)
        # What its tool `read_graph` answers is the same in one object.
        held = [name for name in ("entities", "relations") if isinstance(row.get(name), list)]
        for name in held:
            yield from ((f"{name} {at}", fields(one)) for at, one in enumerate(listed(row[name]), 1))
        if not held:
            yield where, row


def _entity(where: str, row: Mapping[str, object]) -> Iterator[Item]:
    name, kind = first_text(row, "name"), first_text(row, "entityType")
    if not name:
        yield Refused(where, "is an entity without a name")
        return
    tags = tags_of(_KIND, kind)
    observations = listed(row.get("observations"))
    if not observations:
        said = f"{name}: {kind}" if kind else name
        record = {"key": key_of(_KIND, name), "value": said, "kind": "entity", "tags": tags, "source": _KIND}
        yield MemoryItem(f"{where} ({name})", record)
    for at, observed in enumerate(observations, 1):
        # Some forks of the server keep an object where this one keeps a text.
        said = text(observed) or first_text(fields(observed), "content", "text")
        place = f"{where} ({name}), observation {at}"
        if not said.strip():
            yield Refused(place, "has no text")
            continue
        key = key_of(_KIND, name, said)
        value = f"{name}: {said}"
        yield MemoryItem(place, {"key": key, "value": value, "kind": "fact", "tags": tags, "source": _KIND})


def _relation(where: str, row: Mapping[str, object]) -> Item:
    parts = [first_text(row, name) for name in ("from", "relationType", "to")]
    if not all(parts):
        return Refused(where, "is a relation without both ends and a name")
    key = key_of(f"{_KIND}-relation", *parts)
    said = " ".join([parts[0], parts[1].replace("_", " "), parts[2]])
    return MemoryItem(where, {"key": key, "value": said, "kind": "fact", "tags": tags_of(_KIND), "source": _KIND})
