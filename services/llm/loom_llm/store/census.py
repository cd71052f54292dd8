"""Every table of llm, and what it can hold of a user or a memory."""

from typing import Final

from loom_common.erasure import HeldTable, Subject, shared_tables
from loom_llm.store.answers import ERASURES, TABLE

# An answer may quote the memories that its prompt carried; a summary that it was made of names them by a tag.
_QUOTES: Final = """org = {org:String} AND arrayExists(
    gone -> has(namespaces, gone.1) AND (has(window_keys, gone.2) OR has(tags, concat('src:', gone.2))),
    {memories:Array(Tuple(String, String, String, String))})"""

CENSUS: Final = (
    *shared_tables("llm"),
    HeldTable(TABLE.name, of_memories=_QUOTES),
    HeldTable(ERASURES.name, no_memory_content="digests of names, for a day"),
)


def marks_of(subject: Subject) -> dict[str, tuple[list[str], list[str]]]:
    """Returns the keys and tags by which answers that quote a subject are known, by namespace."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for memory in subject.memories:
        keys, tags = found.setdefault(memory.namespace, ([], []))
        keys.append(memory.key)
        tags.append(f"src:{memory.key}")
    return found
