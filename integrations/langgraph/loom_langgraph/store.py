"""LangGraph's store over Loom: items that outlive threads, found again by what they say."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)

from loom_client import Loom, Memory
from loom_langgraph.items import (
    UNINDEXED,
    Namespace,
    fits,
    found_item,
    item_address,
    item_of,
    label,
    memory_key,
    memory_of,
)

# Of one call of `memory.set_many`, of a page of `memory.list` and of one of `memory.search`: the most that each takes.
PUT_MANY: Final = 500
LIST_PAGE: Final = 500
SEARCH_PAGE: Final = 100


class NotStored(ValueError):
    """Loom refused an item: a rule of the namespace does not let it be written, or it is too large."""


class LoomStore(BaseStore):
    """A `BaseStore` whose items are memories in one of Loom's namespaces.

    A put is read back at once, by every process. A search finds by meaning and by words together, over the whole JSON
    of an item; `score` is Loom's, 0 to 1, the same in every search. Reads of a batch come before its writes, and the
    last write of a key wins.

    Args:
        loom: Client to call with, shared with whoever else uses it.
        user_of: Returns the user that a namespace's items are filed under, so that an erasure of the user erases them
            as well. Default: no user.
        ttl: LangGraph's defaults of how long items are kept. Reading an item does not make it live longer.
    """

    supports_ttl = True
    __slots__ = ("_loom", "_user_of", "ttl_config")

    def __init__(
        self, loom: Loom, *, user_of: Callable[[Namespace], str] | None = None, ttl: TTLConfig | None = None
    ) -> None:
        self._loom = loom
        self._user_of = user_of or (lambda _: "")
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations and returns their results in the same order.

        Raises:
            NotStored: Loom refused an item; what was put before it is stored.
            LoomError: A call was refused or failed; its `reason` tells why.
        """
        results: list[Result] = []
        puts: dict[tuple[Namespace, str], PutOp] = {}
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                puts[(op.namespace, op.key)] = op
                results.append(None)
            else:
                results.append(self._read(op))
        self._write(list(puts.values()))
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations in a thread, so that the event loop goes on; see `batch`."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _read(self, op: GetOp | SearchOp | ListNamespacesOp) -> Result:
        if isinstance(op, GetOp):
            return self._get(op.namespace, op.key)
        if isinstance(op, SearchOp):
            return self._search(op)
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        raise ValueError(f"Unknown operation type: {type(op)}")

    def _get(self, namespace: Namespace, key: str) -> Item | None:
        found = self._loom.memory.get(memory_key(namespace, key), user_id=self._user_of(namespace))
        return item_of(found.memory) if found.found and found.memory else None

    def _search(self, op: SearchOp) -> list[SearchItem]:
        found = self._by_words(op) if op.query else self._listed(op.namespace_prefix)
        whole = ((self._whole(memory), score) for memory, score in found)
        items = (found_item(memory, score) for memory, score in whole if memory)
        wanted = (item for item in items if fits(item.value, op.filter or {}))
        return list(islice(wanted, op.offset, op.offset + op.limit))

    def _by_words(self, op: SearchOp) -> Iterator[tuple[Memory, float | None]]:
        # With a filter it is not known how many hits it takes to fill the page.
        wanted = SEARCH_PAGE if op.filter else min(SEARCH_PAGE, op.offset + op.limit)
        tags = [label(op.namespace_prefix)]
        for hit in self._loom.memory.search_all(
            op.query or "", tags=tags, top_k=max(1, wanted), retrieval_budget="fast"
        ):
            if hit.memory and UNINDEXED not in hit.memory.tags:
                yield hit.memory, hit.score

    def _listed(self, prefix: Namespace) -> Iterator[tuple[Memory, float | None]]:
        for memory in self._loom.memory.list_all(tags=[label(prefix)], page_size=LIST_PAGE):
            yield memory, None

    def _whole(self, memory: Memory) -> Memory | None:
        """Returns a memory with its whole text; None where it was deleted in between."""
        if not memory.value_truncated:
            return memory
        return self._loom.memory.get(memory.key, user_id=memory.user_id).memory

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        found = {item_address(memory)[0] for memory, _ in self._listed(_narrowest(op.match_conditions))}
        kept = {space for space in found if all(_matches(one, space) for one in op.match_conditions or ())}
        if op.max_depth is not None:
            kept = {space[: op.max_depth] for space in kept}
        return sorted(kept)[op.offset : op.offset + op.limit]

    def _write(self, puts: list[PutOp]) -> None:
        stored = [memory_of(op, self._user_of(op.namespace)) for op in puts if op.value is not None]
        for begin in range(0, len(stored), PUT_MANY):
            for result in self._loom.memory.set_many(stored[begin : begin + PUT_MANY]).results:
                if not result.stored and result.reason != "unchanged":
                    raise NotStored(f"{result.reason}: {result.message}")
        for op in puts:
            if op.value is None:
                self._loom.memory.delete(memory_key(op.namespace, op.key), user_id=self._user_of(op.namespace))


def _narrowest(conditions: tuple[MatchCondition, ...] | None) -> Namespace:
    """Returns the longest prefix without a wildcard that every namespace asked for begins with."""
    longest: Namespace = ()
    for condition in conditions or ():
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            known = path[: path.index("*")] if "*" in path else path
            longest = max(longest, known, key=len)
    return longest


def _matches(condition: MatchCondition, namespace: Namespace) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"Unsupported match type: {condition.match_type}")
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", is_) for wanted, is_ in zip(path, part, strict=True))
