"""The plane's tables as an erasure sees them.

Documents belong to a namespace and to no user, and repeat no memory. Who stored one is taken out of its rows.
"""

from typing import Final

from loom_common.erasure import IN_ORG, HeldTable

_OF_NAMESPACE: Final = "texts of documents, which belong to a namespace and to no user; knowledge.delete removes them"
_STORED_BY: Final = f"""{IN_ORG}
    AND actor IN (concat('human:', {{user_id:String}}), concat('process:', {{user_id:String}}))
    AND updated_at <= {{started_at:DateTime64(3, 'UTC')}}"""
_NOBODY: Final = "actor = 'human:erased'"

CENSUS: Final = (
    HeldTable("knowledge_documents", of_user=_STORED_BY, scrubbed=_NOBODY, names_only=True),
    HeldTable("knowledge_versions", of_user=_STORED_BY, scrubbed=_NOBODY, names_only=True),
    HeldTable("knowledge_sections", no_memory_content=_OF_NAMESPACE),
    HeldTable("knowledge_chunks", no_memory_content=_OF_NAMESPACE),
    HeldTable("knowledge_embeddings", no_memory_content=_OF_NAMESPACE),
)
