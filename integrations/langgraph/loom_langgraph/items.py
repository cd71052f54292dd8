"""How an item of LangGraph lies in Loom: one memory each, found by its key and by labels of its namespace."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, unquote

from langgraph.store.base import Item, PutOp, SearchItem

from loom_client import Memory, MemoryInput

Namespace = tuple[str, ...]
# Every item carries it, so that all of them can be listed.
EVERY: Final = "langgraph"
# Carried by an item that was put with `index=False`.
UNINDEXED: Final = "langgraph-unindexed"
# A memory carries at most 32 labels, and these are two of them.
MAX_DEPTH: Final = 30
_LABEL_DIGITS: Final = 32


def memory_key(namespace: Namespace, key: str) -> str:
    """Returns the memory's key: every part quoted, so that none can pass for two."""
    return "/".join(quote(part, safe="") for part in ("lg", *namespace, key))


def item_address(memory: Memory) -> tuple[Namespace, str]:
    """Returns the namespace and key of the item that a memory holds."""
    _, *namespace, key = (unquote(part) for part in memory.key.split("/"))
    return tuple(namespace), key


def label(prefix: Namespace) -> str:
    """Returns the label that every item under a namespace carries."""
    if not prefix:
        return EVERY
    joined = "/".join(quote(part, safe="") for part in prefix)
    return f"lg-{hashlib.sha256(joined.encode()).hexdigest()[:_LABEL_DIGITS]}"


def memory_of(op: PutOp, user_id: str) -> MemoryInput:
    """Returns the memory that a put stores.

    Raises:
        ValueError: The namespace is deeper than labels allow.
    """
    if len(op.namespace) > MAX_DEPTH:
        raise ValueError(f"A namespace has at most {MAX_DEPTH} parts here, not {len(op.namespace)}.")
    labels = [label(op.namespace[:depth]) for depth in range(len(op.namespace) + 1)]
    until = datetime.now(UTC) + timedelta(minutes=op.ttl) if op.ttl is not None else None
    return MemoryInput(
        key=memory_key(op.namespace, op.key),
        value=json.dumps(op.value, ensure_ascii=False),
        user_id=user_id,
        tags=(*labels, *((UNINDEXED,) if op.index is False else ())),
        source="langgraph",
        expires_at=until.isoformat(timespec="milliseconds") if until else "",
        # The same text under two keys is two items, and a newer one does not end an older one.
        verbatim=True,
    )


def item_of(memory: Memory) -> Item:
    """Returns the item that a memory holds."""
    namespace, key = item_address(memory)
    return Item(
        value=json.loads(memory.value),
        key=key,
        namespace=namespace,
        created_at=datetime.fromisoformat(memory.created_at),
        updated_at=datetime.fromisoformat(memory.updated_at),
    )


def found_item(memory: Memory, score: float | None) -> SearchItem:
    """Returns the item that a memory holds, as a search answers it."""
    item = item_of(memory)
    return SearchItem(
        namespace=item.namespace,
        key=item.key,
        value=item.value,
        created_at=item.created_at,
        updated_at=item.updated_at,
        score=score,
    )


def fits(value: Any, wanted: Any) -> bool:
    """Returns whether a value fits a filter: equal, part by part, or by `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`.

    Raises:
        ValueError: The filter names another operator.
    """
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compares(value, str(name), bound) for name, bound in wanted.items())
        return isinstance(value, Mapping) and all(fits(value.get(name), inner) for name, inner in wanted.items())
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(fits, value, wanted))
    return bool(value == wanted)


def _compares(value: Any, operator: str, bound: Any) -> bool:
    if operator in ("$eq", "$ne"):
        return bool(value == bound) is (operator == "$eq")
    if operator not in ("$gt", "$gte", "$lt", "$lte"):
        raise ValueError(f"Unsupported operator: {operator}")
    try:
        left, right = float(value), float(bound)
    except (TypeError, ValueError):
        # An item without the field, or with a word in it, is not above or below a number.
        return False
    answers = {"$gt": left > right, "$gte": left >= right, "$lt": left < right, "$lte": left <= right}
    return answers[operator]
