"""Searching memories."""

from loom_memory.app.search.abstention import BELOW_FLOOR, EMBEDDER_CHANGED, EMPTY_NAMESPACE, NO_MATCH, PAGE_EXPIRED
from loom_memory.app.search.memory_search import MemorySearch
from loom_memory.app.search.query import SearchMode, SearchQuery

__all__ = [
    "BELOW_FLOOR",
    "EMBEDDER_CHANGED",
    "EMPTY_NAMESPACE",
    "NO_MATCH",
    "PAGE_EXPIRED",
    "MemorySearch",
    "SearchMode",
    "SearchQuery",
]
