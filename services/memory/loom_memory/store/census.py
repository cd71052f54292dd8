"""Every table of memory, and what it can hold of a user or a memory.

A new table gets its line here; a test looks for one that has none. Rows that an erasure finds by user are those that
name the user themselves; all others are found by the memories that are erased. The order is that of removal: a table by
which the rows of others are found comes behind them.
"""

from typing import Final

from loom_common.erasure import IN_ORG, HeldTable, shared_tables
from loom_memory.context.store.census import CENSUS as CONTEXT
from loom_memory.conversations.store.census import CENSUS as CONVERSATIONS
from loom_memory.guides.store.census import CENSUS as GUIDES
from loom_memory.knowledge.store.census import CENSUS as KNOWLEDGE
from loom_memory.profiles.store.census import CENSUS as PROFILES
from loom_memory.sessions.store.census import CENSUS as SESSIONS
from loom_memory.store import embeddings, memories, versions
from loom_memory.store.erasures import RECEIPTS, WORK

_ERASED: Final = "{memories:Array(Tuple(String, String, String, String))}"
_UPTO: Final = "version <= {upto:UInt64}"
_OF_USER: Final = f"{IN_ORG} AND user_id = {{user_id:String}}"
_OF_MEMORIES: Final = f"{IN_ORG} AND (namespace, memory_key, user_id, session_id) IN {_ERASED}"

ERASER: Final = "process:erasure"
"""Actor of the tombstones by which an erasure hides rows until they are removed."""

# The tombstones are newer than the erasure itself, and go behind all others.
_ROW: Final = f"({_UPTO} OR (tombstoned_at IS NOT NULL AND actor = '{ERASER}'))"


def _identified(table: str, since: str, *, names_only: bool = False) -> HeldTable:
    """Returns the line of a table whose rows name a memory and tell by `since` how old they are."""
    of_user, of_memories = f"{_OF_USER} AND {since}", f"{_OF_MEMORIES} AND {since}"
    return HeldTable(table, of_user=of_user, of_memories=of_memories, names_only=names_only)


def _before(column: str) -> str:
    return f"{column} <= {{started_at:DateTime64(3, 'UTC')}}"


_CONFLICT_OF_USER: Final = f"{IN_ORG} AND (newer_user_id = {{user_id:String}} OR older_user_id = {{user_id:String}})"
_CONFLICT_OF_MEMORIES: Final = f"""{IN_ORG} AND ((namespace, newer_key, newer_user_id, newer_session_id) IN {_ERASED}
    OR (namespace, older_key, older_user_id, older_session_id) IN {_ERASED})"""

# A page shows the memories of one namespace to whoever searched from another; it lives for minutes.
_PAGE_OF_USER: Final = f"""org = {{org:String}} AND user_id = {{user_id:String}}
    AND ({{namespace:String}} = '' OR hit_namespace = {{namespace:String}}) AND {_before("made_at")}"""
_PAGE_OF_MEMORIES: Final = f"""org = {{org:String}} AND (hit_namespace, memory_key, user_id, session_id) IN {_ERASED}
    AND {_before("made_at")}"""

# A question may repeat what its hits say.
_TRACE_OF_USER: Final = f"""{IN_ORG} AND (user_id = {{user_id:String}}
    OR arrayExists(hit -> hit.2 = {{user_id:String}}, found)) AND {_before("asked_at")}"""
_TRACE_OF_MEMORIES: Final = f"""{IN_ORG} AND {_before("asked_at")}
    AND arrayExists(hit -> has({_ERASED}, (toString(namespace), hit.1, hit.2, hit.3)), found)"""

# Every version of a queued conversation goes, the one that a worker wrote since too.
_QUEUED_OF_USER: Final = f"{_OF_USER} AND {_before('created_at')}"
_QUEUED_OF_MEMORIES: Final = f"""{IN_ORG} AND {_before("created_at")} AND arrayExists(
    gone -> gone.1 = namespace AND gone.3 = user_id AND gone.4 = session_id AND has(stored_keys, gone.2), {_ERASED})"""

# An entity goes with the last memory that names it; while others do, it is theirs.
# A worker that read a memory before may write its entities after: what no memory since names goes as well.
_UNNAMED_SINCE: Final = f"""(namespace, entity_id) NOT IN (
    SELECT namespace, arrayJoin(entity_ids) FROM entity_mentions FINAL
    WHERE {_OF_USER} AND tombstoned_at IS NULL AND memory_version > {{upto:UInt64}})"""  # noqa: S608  (constants)
_ENTITIES_OF_USER: Final = f"{_OF_USER} AND ({_UPTO} OR {_UNNAMED_SINCE})"
_NAMED_ALONE: Final = f"""{IN_ORG} AND (namespace, user_id, entity_id) IN (
    SELECT namespace, user_id, arrayJoin(entity_ids) FROM entity_mentions
    WHERE {_OF_MEMORIES}
) AND (namespace, user_id, entity_id) NOT IN (
    SELECT namespace, user_id, arrayJoin(entity_ids) FROM entity_mentions FINAL
    WHERE {IN_ORG} AND tombstoned_at IS NULL
        AND (memory_version > {{upto:UInt64}} OR (namespace, memory_key, user_id, session_id) NOT IN {_ERASED})
)"""  # noqa: S608  (constants; every value is bound)

CENSUS: Final = (
    *shared_tables("memory"),
    _identified(memories.TABLE.name, _ROW),
    _identified(versions.TABLE.name, _UPTO),
    _identified(embeddings.TABLE.name, _UPTO),
    HeldTable("memory_conflicts", of_user=_CONFLICT_OF_USER, of_memories=_CONFLICT_OF_MEMORIES),
    _identified("memory_signals", _before("recorded_at"), names_only=True),
    _identified("memory_exposures", _before("shown_at"), names_only=True),
    HeldTable("search_pages", of_user=_PAGE_OF_USER, of_memories=_PAGE_OF_MEMORIES, names_only=True),
    HeldTable("search_traces", of_user=_TRACE_OF_USER, of_memories=_TRACE_OF_MEMORIES),
    HeldTable("retrieval_judgements", no_memory_content="counts of hits"),
    # Before the notes of what memories name, by which the entities are found.
    HeldTable("entities", of_user=_ENTITIES_OF_USER, of_memories=_NAMED_ALONE),
    HeldTable("entity_vectors", of_user=_ENTITIES_OF_USER, of_memories=_NAMED_ALONE),
    # A worker notes of a deleted memory that it names nothing; the erasure's own tombstones are newer than itself.
    _identified("entity_mentions", "(memory_version <= {upto:UInt64} OR tombstoned_at IS NOT NULL)"),
    HeldTable("extraction_queue", of_user=_QUEUED_OF_USER, of_memories=_QUEUED_OF_MEMORIES),
    *PROFILES,
    *SESSIONS,
    *CONVERSATIONS,
    *KNOWLEDGE,
    *CONTEXT,
    *GUIDES,
    HeldTable("worker_passes", no_memory_content="counts of background passes"),
    HeldTable("worker_cursors", no_memory_content="numbers"),
    HeldTable(RECEIPTS.name, no_memory_content="digests, counts and who asked for an erasure"),
    HeldTable(WORK.name, no_memory_content="names of what is being erased, for as long as that takes"),
)
