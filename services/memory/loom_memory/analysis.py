"""What an analysis may read of memory's tables: who, what kind, when and how often, never a text.

Tags, labels, titles, notes, sources and derived values stay out with the values: people write them.
"""

from typing import Final

from loom_common.analysis import AnalysisTable
from loom_memory.conversations.store.conversations import CONVERSATIONS
from loom_memory.knowledge.store import documents
from loom_memory.store import conflicts, exposures, memories, signals, versions

_REMOVED: Final = "An erasure tombstones the rows at once and then removes them."
_NAMES_GO: Final = "An erasure removes the rows that name what it erases."
_NO_MEMORY: Final = (
    "Holds no memory; an erasure takes out who stored a document, and a deletion hides and then removes it."
)

_IDENTITY: Final = {
    "memory_key": "Key of the memory; unique within namespace, user_id and session_id.",
    "user_id": "User that the memory is filed under; empty for none.",
    "session_id": "Session that the memory is filed under; empty for none.",
}
_FACTS: Final = {
    "kind": "Kind, such as fact, decision or preference.",
    "importance": "Importance, 0 to 1, as the writer gave it.",
    "sensitivity": "How sensitive the text was found to be, or said to be.",
    "agent": "Agent that the memory belongs to; empty for none.",
    "actor": "Who wrote this version.",
    "speaker": "Who said it; empty where nobody is known.",
    "revision": "Number of this version of the key: 1, 2, 3.",
    "created_at": "When the key was first written.",
    "updated_at": "When this version was written.",
    "event_time": "When what it tells of happened; NULL where not said.",
    "valid_at": "From when on it holds; NULL where not said.",
    "invalid_at": "From when on it no longer holds; NULL while it does.",
    "expires_at": "When it stops being shown; NULL for never.",
    "attestation": "What vouches for it.",
    "pinned": "Whether it is pinned.",
}

TABLES: Final = (
    AnalysisTable.of(
        memories.TABLE,
        "One live memory, as it is now.",
        "one_per_key",
        live="tombstoned_at IS NULL",
        erased=_REMOVED,
        columns={**_IDENTITY, **_FACTS, "dl": "Length of the text, in words as search counts them."},
    ),
    AnalysisTable.of(
        versions.TABLE,
        "One version of a memory that is not deleted, the current one included.",
        "one_per_event",
        live="tombstoned_at IS NULL",
        erased=_REMOVED,
        columns={**_IDENTITY, **_FACTS},
    ),
    AnalysisTable.of(
        conflicts.TABLE,
        "One pair of memories that contradict each other, in its newest state.",
        "one_per_key",
        live="tombstoned_at IS NULL",
        erased=_REMOVED,
        columns={
            "conflict_id": "Identifier.",
            "newer_key": "Key of the memory that was written later.",
            "newer_user_id": "Its user; empty for none.",
            "newer_session_id": "Its session; empty for none.",
            "older_key": "Key of the memory that it contradicts.",
            "older_user_id": "Its user; empty for none.",
            "older_session_id": "Its session; empty for none.",
            "cosine": "How close the two texts are, as a cosine.",
            "state": "open, resolved or stale (one of the two was written again or deleted).",
            "resolution": "keep_newer, keep_older, keep_both or merge; empty while it is open.",
            "resolved_by": "Who judged it; empty while nobody has.",
            "actor": "Who wrote the newer memory.",
            "created_at": "When it was found.",
            "updated_at": "When its state last changed.",
        },
    ),
    AnalysisTable.of(
        signals.TABLE,
        "One thing that happened to a memory without a new version of it: told again, or judged.",
        "one_per_event",
        live="1",
        erased=_NAMES_GO,
        columns={
            **_IDENTITY,
            "signal": "repeated, or the word of a judgement such as useful or wrong.",
            "actor": "Who told or judged it.",
            "cosine": "For a repetition, how close it was to the stored text.",
            "recorded_at": "When.",
        },
    ),
    AnalysisTable.of(
        exposures.TABLE,
        "One memory that one answer showed to somebody; kept for 90 days.",
        "one_per_event",
        live="1",
        erased=_NAMES_GO,
        columns={
            **_IDENTITY,
            "revision": "Version of the memory that was shown.",
            "shown_at": "When.",
            "op": "Operation that showed it, such as memory.search.",
            "request_id": "Request that showed it; agent_events has the same.",
            "run_id": "Run that asked; empty for none.",
            "subject": "Who asked.",
            "consumer": "Program that asked.",
            "shown_rank": "Place in the answer, from 1.",
            "score": "Score that was shown, 0 to 1.",
        },
    ),
    AnalysisTable.of(
        documents.DOCUMENTS,
        "One live document, as it is now.",
        "one_per_key",
        live="tombstoned_at IS NULL",
        erased=_NO_MEMORY,
        columns={
            "source_uri": "Name of the document; unique within the namespace.",
            "kind": "Form of the document, such as markdown.",
            "language": "Language of its text; empty where not known.",
            "size_bytes": "Size of its text, in bytes.",
            "chars": "Length of its text, in characters.",
            "pages": "Number of pages; 0 where it has none.",
            "sections": "Number of sections.",
            "chunks": "Number of passages that search compares.",
            "actor": "Who stored this version.",
            "revision": "Number of this version: 1, 2, 3.",
            "created_at": "When it was first stored.",
            "updated_at": "When this version was stored.",
        },
    ),
    AnalysisTable.of(
        CONVERSATIONS,
        "One live conversation, as it is now.",
        "one_per_key",
        live="tombstoned_at IS NULL",
        erased=_REMOVED,
        columns={
            "conversation_id": "Identifier; unique within the namespace.",
            "user_id": "User that it is filed under; empty for none.",
            "session_id": "Session that it is filed under; empty for none.",
            "agent": "Agent that took part; empty for none.",
            "turn_count": "Number of turns.",
            "actor": "Who last wrote to it.",
            "created_at": "When it began.",
            "updated_at": "When it was last written to.",
        },
    ),
)
