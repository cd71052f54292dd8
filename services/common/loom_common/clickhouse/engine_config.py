"""The configuration file of the embedded engine: caps that fit a process shared with everything else.

Source of the values: measured on the embedded engine 26.9 (2026-11-30). Its defaults are a server's: caches of 2 to
5 GB, no sync after an insert, sources of a merge removed at once, and 128 threads at the first big clean-up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the engine may take of the machine.

    Units: bytes.
    """

    memory_bytes: int
    """All of the engine together, the process around it included."""
    cache_bytes: int
    """Each of its mark, index and text index caches."""


_MERGE_TREE: Final[Mapping[str, int]] = {
    # A row that was acknowledged survives a power cut; costs 2 to 4 ms per insert.
    "fsync_after_insert": 1,
    "fsync_part_directory": 1,
    # The parts that a merge replaced stay for a minute, until the merged one is certainly on disk.
    "old_parts_lifetime": 60,
    # Above this many parts the engine removes them from 128 threads at once; so never.
    "concurrent_part_removal_threshold": 1_000_000,
    "cleanup_delay_period": 5,
    "max_cleanup_delay_period": 10,
}

_CACHES: Final = (
    "mark_cache_size",
    "index_mark_cache_size",
    "primary_index_cache_size",
    "text_index_postings_cache_size",
    "text_index_tokens_cache_size",
    "text_index_header_cache_size",
    "vector_similarity_index_cache_size",
    "query_condition_cache_size",
)


def render_engine_config(limits: EngineLimits, users_file: str = "") -> str:
    """Returns the engine's configuration file; `users_file` is the path of the one with its roles, empty for none."""
    server: dict[str, int] = {"max_server_memory_usage": limits.memory_bytes}
    server.update(dict.fromkeys(_CACHES, limits.cache_bytes))
    server["compiled_expression_cache_size"] = 32 * _MIB
    lines = [_element(name, value, "  ") for name, value in server.items()]
    merge_tree = "\n".join(_element(name, value, "    ") for name, value in _MERGE_TREE.items())
    if users_file:
        lines.append(f"  <users_config>{escape(users_file)}</users_config>")
    return "<clickhouse>\n" + "\n".join(lines) + f"\n  <merge_tree>\n{merge_tree}\n  </merge_tree>\n</clickhouse>\n"


def _element(name: str, value: int, indent: str) -> str:
    return f"{indent}<{name}>{escape(str(value))}</{name}>"
