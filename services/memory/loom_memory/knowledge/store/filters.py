"""What a read of documents keeps, as a WHERE clause of only those conditions that it has."""

from dataclasses import dataclass
from typing import Final

from loom_common.call import Scope
from loom_memory.knowledge.domain.documents import AGENT_TAG, DocumentFilter

IN_SCOPE: Final = "org = {org:String} AND namespace = {namespace:String}"
"""Keeps the rows of one namespace; binds `in_scope`."""

LIVE: Final = "tombstoned_at IS NULL"
"""Keeps documents that are not deleted. Only under FINAL."""

LIVE_VERSIONS: Final = f"(SELECT source_uri, version FROM knowledge_documents FINAL WHERE {IN_SCOPE} AND {LIVE})"  # noqa: S608
"""The versions of a namespace that are shown: every read of sections, chunks and vectors keeps to them."""

_NOT_OF_ANOTHER_AGENT: Final = f"""(NOT arrayExists(tag -> startsWith(tag, '{AGENT_TAG}'), tags)
    OR hasAny(tags, {{agents:Array(String)}}))"""


@dataclass(frozen=True, slots=True)
class Where:
    """Conditions and what they bind."""

    sql: str
    parameters: dict[str, object]


def in_scope(scope: Scope) -> dict[str, object]:
    """Returns what `IN_SCOPE` binds."""
    return {"org": scope.org, "namespace": scope.namespace}


def of_document(scope: Scope, source_uri: str) -> dict[str, object]:
    """Returns what names one document."""
    return {**in_scope(scope), "source_uri": source_uri}


def shown(scope: Scope, wanted: DocumentFilter) -> Where:
    """Keeps the rows of `knowledge_documents` that are shown and pass the filter."""
    conditions, parameters = [IN_SCOPE, LIVE], in_scope(scope)
    if wanted.source_prefix:
        conditions.append("startsWith(source_uri, {prefix:String})")
        parameters["prefix"] = wanted.source_prefix
    if wanted.source_uris:
        conditions.append("has({uris:Array(String)}, source_uri)")
        parameters["uris"] = list(wanted.source_uris)
    if wanted.kinds:
        conditions.append("has({kinds:Array(String)}, kind)")
        parameters["kinds"] = list(wanted.kinds)
    if wanted.tags:
        conditions.append("hasAny(tags, {tags:Array(String)})")
        parameters["tags"] = list(wanted.tags)
    if wanted.agent is not None:
        conditions.append(_NOT_OF_ANOTHER_AGENT)
        parameters["agents"] = list(wanted.agent_tags)
    return Where("\n    AND ".join(conditions), parameters)
