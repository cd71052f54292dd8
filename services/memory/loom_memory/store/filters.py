"""What a read of memories keeps, as a WHERE clause of only those conditions that it has.

A condition that keeps everything is left out and not bound to an empty value: the engine plans each anew with every
statement, and that took longer than reading the rows (15 ms with all of them, 9 without; measured 2026-11-30).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_memory.domain.memory import Filter
from loom_memory.domain.narrowing import Narrowing, Span

IN_SCOPE: Final = "org = {org:String} AND namespace = {namespace:String}"
"""Keeps the rows of one namespace; binds `in_scope`."""

_SHOWN: Final = """tombstoned_at IS NULL
    AND (expires_at IS NULL OR expires_at > {now:DateTime64(3, 'UTC')})"""

_HAPPENED_SINCE: Final = "ifNull(event_time, created_at) >= {happened_since:DateTime64(3, 'UTC')}"
_HAPPENED_UNTIL: Final = "ifNull(event_time, created_at) < {happened_until:DateTime64(3, 'UTC')}"
_UPDATED_SINCE: Final = "updated_at >= {updated_since:DateTime64(3, 'UTC')}"
_UPDATED_UNTIL: Final = "updated_at < {updated_until:DateTime64(3, 'UTC')}"


@dataclass(frozen=True, slots=True)
class Where:
    """Conditions and what they bind."""

    sql: str
    parameters: dict[str, object]


def in_scope(scope: Scope) -> dict[str, object]:
    """Returns what `IN_SCOPE` binds."""
    return {"org": scope.org, "namespace": scope.namespace}


def of_owner(scope: Scope, wanted: Filter) -> Where:
    """Keeps the rows of the namespace that belong to the filter's user and session; of it only these two count."""
    conditions, parameters = [IN_SCOPE], in_scope(scope)
    if wanted.user_id is not None:
        conditions.append("user_id = {user:String}")
        parameters["user"] = wanted.user_id
    if wanted.session_id is not None:
        conditions.append("session_id = {session:String}")
        parameters["session"] = wanted.session_id
    return Where("\n    AND ".join(conditions), parameters)


def shown(scope: Scope, wanted: Filter, now: datetime) -> Where:
    """Keeps the rows of `memory` that are shown at `now` and pass the whole filter."""
    owned = of_owner(scope, wanted)
    conditions, parameters = [owned.sql, _SHOWN], {**owned.parameters, "now": now}
    if wanted.agent:
        conditions.append("agent = {agent:String}")
        parameters["agent"] = wanted.agent
    if wanted.kinds:
        conditions.append("has({kinds:Array(String)}, kind)")
        parameters["kinds"] = list(wanted.kinds)
    if wanted.tags:
        conditions.append("hasAny(tags, {tags:Array(String)})")
        parameters["tags"] = list(wanted.tags)
    for condition, bound in _narrowed(wanted.more):
        conditions.append(condition)
        parameters.update(bound)
    return Where("\n    AND ".join(conditions), parameters)


def _narrowed(more: Narrowing) -> Iterator[tuple[str, dict[str, object]]]:
    """Yields each condition that a search asks for beside the others, with what it binds."""
    if more.speakers:
        yield "has({speakers:Array(String)}, speaker)", {"speakers": list(more.speakers)}
    if more.sources:
        yield "has({sources:Array(String)}, source)", {"sources": list(more.sources)}
    if more.sensitivities:
        yield "has({sensitivities:Array(String)}, sensitivity)", {"sensitivities": list(more.sensitivities)}
    if more.min_importance is not None:
        yield "importance >= {min_importance:Float64}", {"min_importance": more.min_importance}
    if more.pinned is not None:
        yield "pinned = {pinned:Bool}", {"pinned": more.pinned}
    yield from _within(more.happened, _HAPPENED_SINCE, _HAPPENED_UNTIL, "happened")
    yield from _within(more.updated, _UPDATED_SINCE, _UPDATED_UNTIL, "updated")


def _within(span: Span, since: str, until: str, name: str) -> Iterator[tuple[str, dict[str, object]]]:
    if span.since is not None:
        yield since, {f"{name}_since": span.since}
    if span.until is not None:
        yield until, {f"{name}_until": span.until}
