"""The columns that `memory` and `memory_versions` share, and the way between a row and a `Memory`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from loom_common.call import Scope
from loom_common.clickhouse import Column
from loom_memory.domain.memory import Content, Identity, Memory

_TIME: Final = "DateTime64(3, 'UTC')"
_MAYBE_TIME: Final = f"Nullable({_TIME})"

COLUMNS: Final = (
    Column("org", "LowCardinality(String)"),
    Column("namespace", "LowCardinality(String)"),
    Column("memory_key", "String"),
    Column("user_id", "String"),
    Column("session_id", "String"),
    Column("value", "String"),
    Column("kind", "LowCardinality(String)"),
    Column("tags", "Array(String)"),
    Column("importance", "Float64"),
    Column("sensitivity", "LowCardinality(String)"),
    Column("agent", "String"),
    Column("actor", "String"),
    Column("speaker", "String"),
    Column("source", "String"),
    Column("revision", "UInt32"),
    Column("version", "UInt64"),
    Column("created_at", _TIME),
    Column("updated_at", _TIME),
    Column("event_time", _MAYBE_TIME),
    Column("valid_at", _MAYBE_TIME),
    Column("invalid_at", _MAYBE_TIME),
    Column("expires_at", _MAYBE_TIME),
    Column("tombstoned_at", _MAYBE_TIME),
    Column("attestation", "LowCardinality(String)"),
    Column("pinned", "Bool"),
    Column("sensitivity_stated", "LowCardinality(String)"),
    Column("sensitivity_found", "Array(LowCardinality(String))"),
    Column("recogniser", "LowCardinality(String)"),
    Column("labels", "Array(String)"),
    Column("derived_from", "Array(String)"),
    Column("request_id", "String"),
)

SELECTED: Final = ", ".join(column.name for column in COLUMNS)
"""The shared columns, as a select list in the order that `memory_from_row` reads."""

IDENTITY: Final = "memory_key, user_id, session_id"
"""The columns of an `Identity`, in its order."""

IDENTITIES: Final = "Array(Tuple(String, String, String))"
"""Type of a bound list of identities."""

KEY_RANGE: Final = """org = {org:String} AND namespace = {namespace:String}
    AND memory_key > {after:String} AND ({upto:String} = '' OR memory_key <= {upto:String})"""
"""Keeps the rows of a `KeyRange`; binds what `key_range_parameters` returns."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The memories of one namespace whose keys lie behind `after`, up to and with `upto`; empty = no such bound."""

    scope: Scope
    after: str = ""
    upto: str = ""


def key_range_parameters(keys: KeyRange) -> dict[str, object]:
    """Returns what `KEY_RANGE` binds."""
    return {"org": keys.scope.org, "namespace": keys.scope.namespace, "after": keys.after, "upto": keys.upto}


def row_from_memory(memory: Memory) -> tuple[object, ...]:
    """Returns the values of `COLUMNS`."""
    content = memory.content
    return (
        memory.scope.org,
        memory.scope.namespace,
        memory.identity.key,
        memory.identity.user_id,
        memory.identity.session_id,
        content.value,
        content.kind,
        list(content.tags),
        content.importance,
        memory.sensitivity,
        content.agent,
        memory.actor,
        content.speaker,
        content.source,
        memory.revision,
        memory.version,
        memory.created_at,
        memory.updated_at,
        content.event_time,
        memory.valid_at,
        memory.invalid_at,
        content.expires_at,
        memory.tombstoned_at,
        memory.attestation,
        content.pinned,
        memory.sensitivity_stated,
        list(memory.sensitivity_found),
        memory.recogniser,
        list(memory.labels),
        list(memory.derived_from),
        memory.request_id,
    )


def memory_from_row(row: Sequence[Any]) -> Memory:  # Any: a row's types are the columns'
    """Returns the memory of a row whose first values are those of `SELECTED`."""
    return Memory(
        scope=Scope(row[0], row[1]),
        identity=Identity(row[2], row[3], row[4]),
        content=Content(
            value=row[5],
            kind=row[6],
            tags=tuple(row[7]),
            importance=row[8],
            agent=row[10],
            speaker=row[12],
            source=row[13],
            event_time=row[18],
            expires_at=row[21],
            pinned=bool(row[24]),
        ),
        sensitivity=row[9],
        actor=row[11],
        revision=row[14],
        version=row[15],
        created_at=row[16],
        updated_at=row[17],
        valid_at=row[19],
        invalid_at=row[20],
        tombstoned_at=row[22],
        attestation=row[23],
        sensitivity_stated=row[25],
        sensitivity_found=tuple(row[26]),
        recogniser=row[27],
        labels=tuple(row[28]),
        derived_from=tuple(row[29]),
        request_id=row[30],
    )
