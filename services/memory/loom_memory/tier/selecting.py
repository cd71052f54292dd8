"""Which rows of a shard a filter keeps."""

from collections.abc import Collection
from dataclasses import fields
from datetime import datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loom_memory.domain.memory import Filter
from loom_memory.domain.narrowing import EVERYTHING, Narrowing, Span
from loom_memory.tier.packing import milliseconds
from loom_memory.tier.shard import Shard

Mask = NDArray[np.bool_]

_KNOWN: Final = frozenset({"user_id", "session_id", "kinds", "tags", "agent", "more"})
_KNOWN_MORE: Final = frozenset({"speakers", "happened", "updated"})
_ANY: Final = Filter()
_OTHERS: Final = tuple(field.name for field in fields(Filter) if field.name not in _KNOWN)
_OTHERS_MORE: Final = tuple(field.name for field in fields(Narrowing) if field.name not in _KNOWN_MORE)


def is_known(wanted: Filter) -> bool:
    """Says whether the tier knows every part of a filter; what it does not know only the database can keep to."""
    return all(getattr(wanted, name) == getattr(_ANY, name) for name in _OTHERS) and all(
        getattr(wanted.more, name) == getattr(EVERYTHING, name) for name in _OTHERS_MORE
    )


def owned(shard: Shard, wanted: Filter) -> Mask | None:
    """Returns which rows are of the filter's user and session, None for all; as `store.filters.of_owner`."""
    columns = shard.columns
    conditions = []
    if wanted.user_id is not None:
        conditions.append(columns["user"] == shard.users.find(wanted.user_id))
    if wanted.session_id is not None:
        conditions.append(columns["session"] == shard.sessions.find(wanted.session_id))
    return _all(conditions)


def shown(shard: Shard, wanted: Filter, now: datetime) -> Mask:
    """Returns which rows are shown at `now` and pass the filter; as `store.filters.shown`."""
    columns = shard.columns
    conditions = [columns["is_alive"], columns["expires"] > milliseconds(now)]
    mine = owned(shard, wanted)
    if mine is not None:
        conditions.append(mine)
    if wanted.agent:
        conditions.append(columns["agent"] == shard.agents.find(wanted.agent))
    if wanted.kinds:
        conditions.append(np.isin(columns["kind"], [shard.kinds.find(kind) for kind in wanted.kinds]))
    if wanted.tags:
        conditions.append(with_tag(shard, wanted.tags))
    if wanted.more.speakers:
        codes = [shard.speakers.find(speaker) for speaker in wanted.more.speakers]
        conditions.append(np.isin(columns["speaker"], codes))
    conditions += within(columns["at"], wanted.more.happened)
    conditions += within(columns["updated"], wanted.more.updated)
    found = _all(conditions)
    return np.zeros(0, np.bool_) if found is None else found


def with_tag(shard: Shard, tags: Collection[str]) -> Mask:
    """Returns which rows carry any of these tags."""
    asked = frozenset(tags)
    matching = [code for code, held in enumerate(shard.tags.values()) if not asked.isdisjoint(held)]
    return np.isin(shard.columns["tags"], matching)


def within(times: NDArray[Any], span: Span) -> list[Mask]:
    """Returns the conditions that keep times in a stretch."""
    conditions = []
    if span.since is not None:
        conditions.append(times >= milliseconds(span.since))
    if span.until is not None:
        conditions.append(times < milliseconds(span.until))
    return conditions


def _all(conditions: list[NDArray[Any]]) -> Mask | None:
    """Joins conditions; a row that came while they were looked at is left out."""
    if not conditions:
        return None
    count = min(map(len, conditions))
    joined: Mask = conditions[0][:count].copy()
    for condition in conditions[1:]:
        joined &= condition[:count]
    return joined
