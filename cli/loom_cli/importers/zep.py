"""Zep and Graphiti: facts (edges) with the times at which they held, entities (nodes) and episodes, as objects print.

Graphiti has no file of its own: a file is a list, lines, or an object with lists (`edges` or `facts`, `nodes` or
`entities`, `episodes`) of what `model_dump_json` of its classes or the Zep API answers.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from loom_cli.importers.items import Item, MemoryItem, Refused, Skipped, key_of, tags_of
from loom_cli.importers.values import fields, first_text, listed, text, texts, time_text

_KIND: Final = "zep"
_LISTS: Final = ("edges", "facts", "nodes", "entities", "episodes")
_MAX_SOURCES: Final = 1_000


def items(values: Iterable[tuple[str, object]]) -> Iterator[Item]:
    """Yields what the values of a file hold."""
    for where, value in values:
        row = fields(value)
        held = [name for name in _LISTS if isinstance(row.get(name), list)]
        # An edge names its episodes in a list of its own.
        if held and "fact" not in row and "uuid" not in row:
            for name in held:
                for at, one in enumerate(listed(row[name]), 1):
                    yield _item(f"{name} {at}", fields(one))
            continue
        yield _item(where, row)


def _item(where: str, row: Mapping[str, object]) -> Item:
    uuid = first_text(row, "uuid", "uuid_")
    where = f"{where} ({uuid})" if uuid else where
    if not uuid:
        return Refused(where, "has no uuid")
    if "fact" in row:
        return _fact(where, uuid, row)
    if "content" in row:
        return _episode(where, uuid, row)
    if "summary" in row:
        return _entity(where, uuid, row)
    if "source_node_uuid" in row:
        return Skipped(where, "an edge that states no fact")
    return Refused(where, "is neither a fact, nor a node, nor an episode")


def _fact(where: str, uuid: str, row: Mapping[str, object]) -> Item:
    value = first_text(row, "fact")
    if not value:
        return Refused(where, "has no text")
    # Graphiti stamps what it replaced with `expired_at`, also where it does not know when that ceased to hold.
    ended = time_text(row.get("invalid_at")) or time_text(row.get("expired_at"))
    episodes = [key_of(f"{_KIND}-episode", one) for one in texts(row.get("episodes"))]
    return MemoryItem(
        where,
        {
            "key": key_of(f"{_KIND}-fact", uuid),
            "value": value,
            "kind": "fact",
            "tags": tags_of(_KIND, text(row.get("name"))),
            "valid_at": time_text(row.get("valid_at")),
            "invalid_at": ended,
            "created_at": time_text(row.get("created_at")),
            "derived_from": episodes[:_MAX_SOURCES],
            "source": _source(row),
        },
    )


def _entity(where: str, uuid: str, row: Mapping[str, object]) -> Item:
    name, summary = first_text(row, "name"), first_text(row, "summary")
    if not summary:
        return Skipped(where, "a node without a summary")
    labels = [label for label in texts(row.get("labels")) if label != "Entity"]
    return MemoryItem(
        where,
        {
            "key": key_of(f"{_KIND}-node", uuid),
            "value": f"{name}: {summary}" if name else summary,
            "kind": "entity",
            "tags": tags_of(_KIND, *labels),
            "created_at": time_text(row.get("created_at")),
            "source": _source(row),
        },
    )


def _episode(where: str, uuid: str, row: Mapping[str, object]) -> Item:
    value = first_text(row, "content")
    if not value:
        return Refused(where, "has no text")
    happened = time_text(row.get("valid_at")) or time_text(row.get("reference_time"))
    return MemoryItem(
        where,
        {
            "key": key_of(f"{_KIND}-episode", uuid),
            "value": value,
            "kind": "episode",
            "tags": tags_of(_KIND),
            "speaker": first_text(row, "role_name", "role", "role_type"),
            "event_time": happened or time_text(row.get("created_at")),
            "created_at": time_text(row.get("created_at")),
            "source": _source(row),
        },
    )


def _source(row: Mapping[str, object]) -> str:
    group = first_text(row, "group_id", "graph_uuid", "graph_id")
    return f"{_KIND}: {group}"[:1_000] if group else _KIND
