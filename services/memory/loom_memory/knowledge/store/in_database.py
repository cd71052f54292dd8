"""Vectors of passages that the database asks a provider for itself."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Collection
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_memory.domain.vectors import VectorSpace
from loom_memory.knowledge.store.embeddings import OF_SPACE
from loom_memory.knowledge.store.filters import LIVE

# Source: as for memories; at a hundred texts a request, some two million texts.
_TIMEOUT_S: Final = 6 * 3600.0
_SETTINGS: Final = {
    # What it cannot embed is left as it is, and does not lose the others.
    "ai_function_throw_on_error": 0,
    # The function's own bounds are for people who try it out.
    "ai_function_max_api_calls_per_query": 0,
    "ai_function_max_input_tokens_per_query": 0,
}
_ROW: Final = "org, namespace, source_uri, version, chunk"
_OF_NAMES: Final = """({org:String} = '' OR org = {org:String})
    AND ({namespace:String} = '' OR namespace = {namespace:String})"""
# A passage is never longer than the smallest window of a provider.
_EMBED: Final = f"""INSERT INTO knowledge_embeddings ({_ROW}, embedding_model, part, embedding, embedding_dim)
SELECT {_ROW}, {{model:String}}, 0, arrayMap(x -> toFloat32(x / L2Norm(vector)), vector), {{dim:UInt16}}
FROM (
    SELECT {_ROW}, aiEmbed(concat(breadcrumb, '\\n', trim(text)), {{model:String}},
        map('credentials', {{collection:String}}, 'dimensions', toString({{dim:UInt16}}))) AS vector
    FROM knowledge_chunks
    WHERE {_OF_NAMES} AND NOT has({{off:Array(String)}}, org)
        AND (org, namespace, source_uri, version) IN (
            SELECT org, namespace, source_uri, version FROM knowledge_documents FINAL WHERE {_OF_NAMES} AND {LIVE})
        AND ({_ROW}) NOT IN (SELECT {_ROW} FROM knowledge_embeddings WHERE {_OF_NAMES} AND {OF_SPACE})
)
WHERE length(vector) = {{dim:UInt16}} AND L2Norm(vector) > 0 AND arrayAll(x -> isFinite(x), vector)"""


async def embed_in_database(
    ch: ClickHouse, names: Scope, space: VectorSpace, collection: str, off: Collection[str] = ()
) -> None:
    """Gives vectors to every passage of the named organisation and namespace; an empty name is all.

    Organisations of `off` are left as they are. Vectors of another width, and what is not finite, are not stored.
    """
    parameters = {
        "org": names.org, "namespace": names.namespace, **space._asdict(), "collection": collection, "off": sorted(off),
    }  # fmt: skip
    await ch.command(_EMBED, parameters, settings=_SETTINGS, timeout_s=_TIMEOUT_S)
