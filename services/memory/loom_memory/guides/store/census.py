"""The tables of guides and snapshots as an erasure sees them.

A guide is written by administrators about the namespace; who wrote it is taken out of its rows. A snapshot names
memories by their keys, and holds nothing of what they say; it goes, and is computed anew by whoever reads next.
"""

from typing import Final

from loom_common.erasure import IN_ORG, HeldTable

_BEFORE: Final = "<= {started_at:DateTime64(3, 'UTC')}"
_WRITTEN_BY: Final = f"""{IN_ORG} AND updated_at {_BEFORE}
    AND actor IN (concat('human:', {{user_id:String}}), concat('process:', {{user_id:String}}))"""
_NAMES_USER: Final = f"{IN_ORG} AND computed_at {_BEFORE} AND has(users, {{user_id:String}})"
_NAMES_MEMORIES: Final = f"{IN_ORG} AND computed_at {_BEFORE} AND hasAny(memory_keys, {{keys:Array(String)}})"

CENSUS: Final = (
    HeldTable("namespace_guides", of_user=_WRITTEN_BY, scrubbed="actor = 'human:erased'", names_only=True),
    HeldTable("namespace_snapshots", of_user=_NAMES_USER, of_memories=_NAMES_MEMORIES, names_only=True),
)
