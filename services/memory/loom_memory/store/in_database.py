"""Vectors that the database asks a provider for itself."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Collection
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_memory.domain.keys import FIRST_KEY_CHUNK
from loom_memory.domain.vectors import Parts, VectorSpace
from loom_memory.store.columns import IDENTITY
from loom_memory.store.embeddings import OF_SPACE
from loom_memory.store.key_sql import KEY_ROW, KEY_TEXT, SAYS_WORDS

MOST_CHARS: Final = 2_000
"""Longest text that the database embeds.

It knows no chunks, and one text above the model's window fails the whole request that it is in. Source: chosen, under
the smallest window of the providers (2,048 tokens).
"""

# Source: chosen. At a hundred texts a request, some two million texts.
_TIMEOUT_S: Final = 6 * 3600.0
_SETTINGS: Final = {
    # What it cannot embed is left as it is, and does not lose the others.
    "ai_function_throw_on_error": 0,
    # The function's own bounds are for people who try it out.
    "ai_function_max_api_calls_per_query": 0,
    "ai_function_max_input_tokens_per_query": 0,
}

_ROW: Final = f"org, namespace, {IDENTITY}, version"
_OF_NAMES: Final = """({org:String} = '' OR org = {org:String})
    AND ({namespace:String} = '' OR namespace = {namespace:String})"""
# A row for the value of each memory and one for its key, where that says something.
_WAITING: Final = f"""SELECT {_ROW}, chunk, text, invalid_at, attestation FROM memory FINAL
    ARRAY JOIN [toUInt16(0), toUInt16({FIRST_KEY_CHUNK})] AS chunk, [value, {KEY_TEXT}] AS text
    WHERE {_OF_NAMES} AND NOT has({{off:Array(String)}}, org)
        AND tombstoned_at IS NULL AND lengthUTF8(text) <= {MOST_CHARS}
        AND (expires_at IS NULL OR expires_at > {{now:DateTime64(3, 'UTC')}})
        AND if({KEY_ROW}, {{of_keys:Bool}} AND {SAYS_WORDS}, {{of_values:Bool}})
        AND ({_ROW}, {KEY_ROW}) NOT IN (
            SELECT {_ROW}, {KEY_ROW} FROM memory_embeddings WHERE {_OF_NAMES} AND {OF_SPACE})"""

_EMBED: Final = f"""INSERT INTO memory_embeddings (org, namespace, embedding_model, {IDENTITY}, chunk, version,
    start_offset, end_offset, embedding, embedding_dim, status, invalid_at, attestation, embed_retry_at)
SELECT org, namespace, {{model:String}}, {IDENTITY}, chunk, version, 0, if({KEY_ROW}, 0, lengthUTF8(text)),
    arrayMap(x -> toFloat32(x / L2Norm(vector)), vector), {{dim:UInt16}}, kept_status,
    if(has_row, kept_invalid_at, invalid_at), if(has_row, kept_attestation, attestation), NULL
FROM (
    SELECT waiting.*, kept_status, kept_invalid_at, kept_attestation, has_row,
        aiEmbed(text, {{model:String}},
            map('credentials', {{collection:String}}, 'dimensions', toString({{dim:UInt16}}))) AS vector
    FROM ({_WAITING}) AS waiting
    LEFT JOIN (
        SELECT {_ROW}, max(status) AS kept_status, max(invalid_at) AS kept_invalid_at,
            max(attestation) AS kept_attestation, true AS has_row
        FROM memory_embeddings WHERE {_OF_NAMES} GROUP BY {_ROW}
    ) AS rest USING ({_ROW})
)
WHERE length(vector) = {{dim:UInt16}} AND L2Norm(vector) > 0 AND arrayAll(x -> isFinite(x), vector)"""


async def embed_in_database(
    ch: ClickHouse,
    names: Scope,
    space: VectorSpace,
    parts: Parts,
    collection: str,
    now: datetime,
    off: Collection[str] = (),
) -> None:
    """Gives vectors to these parts of every memory, of the named organisation and namespace; an empty name is all.

    Organisations of `off` are left as they are.

    Vectors of another width, and those that are not finite, are not stored.
    """
    parameters = {
        "org": names.org, "namespace": names.namespace, **space._asdict(), "collection": collection, "now": now,
        "off": sorted(off), "of_values": Parts.VALUES in parts, "of_keys": Parts.KEYS in parts,
    }  # fmt: skip
    await ch.command(_EMBED, parameters, settings=_SETTINGS, timeout_s=_TIMEOUT_S)
