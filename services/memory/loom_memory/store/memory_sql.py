"""The statements over the table `memory`; `memories.MemoryRepository` runs them.

Each reads with FINAL, so that a superseded row is never seen, and filters with WHERE alone: under FINAL an explicit
filter before the merge of versions returned superseded and deleted rows (measured on the embedded engine, 26.9).
`where` is the text of a `filters.Where`.
"""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from typing import Final

from loom_memory.domain.ranking import EXCERPT_CHARS, WINDOW
from loom_memory.domain.scoring import K1, SHARE_K, B
from loom_memory.store.columns import IDENTITIES, IDENTITY, SELECTED
from loom_memory.store.filters import IN_SCOPE

_NAMED: Final = f"({IDENTITY}) IN {{identities:{IDENTITIES}}}"

# The identities bound the result and callers look rows up by them; an order cost a point read 3 ms of 11 (measured).
CURRENT: Final = f"SELECT {SELECTED} FROM memory FINAL WHERE {IN_SCOPE} AND {_NAMED}"


def live_versions(where: str) -> str:
    """Sub-select of the (identity, version) pairs that a filtered read admits."""
    return f"SELECT {IDENTITY}, version FROM memory FINAL WHERE {where}"


def fetch(where: str) -> str:
    """Whole rows by identity."""
    return f"SELECT {SELECTED} FROM memory FINAL WHERE {where} AND {_NAMED}"


def sketches(where: str) -> str:
    """What ranking needs: most of what a search looks at is not shown, so its rows stay in the store."""
    return f"""SELECT {IDENTITY}, version, speaker, ifNull(event_time, created_at), lengthUTF8(value),
    substringUTF8(value, 1, {EXCERPT_CHARS}), kind, importance, pinned, valid_at, invalid_at, updated_at
FROM memory FINAL WHERE {where} AND {_NAMED}"""


def statistics(where: str) -> str:
    """What weighs terms and names speakers."""
    return f"""SELECT count(), avg(dl), groupUniqArrayIf(256)(speaker, speaker != '')
FROM memory FINAL WHERE {where}"""


def lexical(where: str) -> str:
    """The lexical leg.

    df comes from the matches themselves, so that a row written a moment ago counts. n and adl may be seconds old, and
    n is never below a df.
    """
    return f"""WITH {{q:Array(UInt32)}} AS q, {{w:Array(Float64)}} AS w, {{x:Array(UInt8)}} AS x,
    {{n:Float64}} AS n, {{adl:Float64}} AS adl
SELECT {IDENTITY}, version,
    arraySum((wi, i, f) -> wi * i * f * {K1 + 1} / (f + {K1} * ({1 - B} + {B} * dl / adl)), w, idf, tf) AS bm25,
    arraySum((wi, i, f) -> wi * i * f / (f + {SHARE_K}), w, idf, tf) / arraySum((wi, i) -> wi * i, w, idf) AS share,
    arrayExists((xi, f) -> xi = 1 AND f > 0, x, tf) AS exact
FROM (
    SELECT {IDENTITY}, version, dl, tf,
        arrayMap(d -> log(1 + (greatest(n, d) - d + 0.5) / (d + 0.5)),
            sumForEach(arrayMap(f -> toFloat64(f > 0), tf)) OVER ()) AS idf
    FROM (
        SELECT {IDENTITY}, version, dl, arrayMap(t -> toFloat64(countEqual(term_ids, t)), q) AS tf
        FROM memory FINAL WHERE {where} AND hasAny(term_ids, q)
    )
)
ORDER BY exact DESC, bm25 DESC, {IDENTITY} LIMIT {{limit:UInt32}}"""


def page(where: str) -> str:
    """One page of a list.

    A row's place in the list is the version it had when the list began, so that a row that is written again while
    someone pages neither leaves the pages to come nor shows up twice. Rows made later than `upto` are not listed.
    """
    return f"""SELECT {IDENTITY}, place, newest FROM (
    SELECT {IDENTITY}, max(version) OVER () AS newest,
        if(version <= {{settled:UInt64}} OR was = 0, version, was) AS place
    FROM (SELECT {IDENTITY}, version FROM memory FINAL WHERE {where}) AS live
    LEFT JOIN (
        SELECT {IDENTITY}, max(version) AS was FROM memory_versions
        WHERE {IN_SCOPE} AND version <= {{settled:UInt64}}
            AND ({IDENTITY}) IN (SELECT {IDENTITY} FROM memory FINAL WHERE {IN_SCOPE} AND version > {{settled:UInt64}})
        GROUP BY {IDENTITY}
    ) AS earlier USING ({IDENTITY})
)
WHERE place <= {{upto:UInt64}}
    AND (place < {{after:UInt64}} OR (place = {{after:UInt64}}
        AND ({IDENTITY}) > {{after_identity:Tuple(String, String, String)}}))
ORDER BY place DESC, {IDENTITY} LIMIT {{limit:UInt32}}"""


_NOT_LONGER: Final = f"""(
            SELECT user_id, session_id FROM memory
            WHERE {IN_SCOPE} AND (user_id, session_id) IN {{around:Array(Tuple(String, String))}}
            GROUP BY user_id, session_id HAVING count() <= {{longest:UInt32}})"""


def neighbours(where: str, *, may_be_long: bool) -> str:
    """The rows around some in their sessions, with their places there.

    Turns of one conversation often share their time; `created_at` and `version` then say which came first. Sorted are
    keys and times alone, of sessions of a bounded length: the count includes superseded rows, which bounds it as well.
    """
    sessions = _NOT_LONGER if may_be_long else "{around:Array(Tuple(String, String))}"
    return f"""SELECT {IDENTITY}, version, position FROM (
    SELECT {IDENTITY}, version, position, sum(is_seed) OVER (PARTITION BY user_id, session_id ORDER BY position
        ROWS BETWEEN {WINDOW} PRECEDING AND {WINDOW} FOLLOWING) AS near
    FROM (
        SELECT {IDENTITY}, version, {_NAMED} AS is_seed, row_number() OVER (PARTITION BY user_id, session_id
            ORDER BY ifNull(event_time, created_at), created_at, version, memory_key) AS position
        FROM memory FINAL
        WHERE {where} AND (user_id, session_id) IN {sessions}
    )
)
WHERE near > 0 ORDER BY user_id, session_id, position LIMIT {{limit:UInt32}}"""
