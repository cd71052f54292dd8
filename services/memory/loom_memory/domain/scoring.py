"""The lexical match and the shown score of a hit.

The store computes the lexical numbers in one statement; `lexical_match` is the reference that tests compare it with.
A query is three parallel arrays (`AnalyzedQuery`): `q` ids, `w` weights, `x` 1 for a whole identifier. For a row,
`f[i] = countEqual(term_ids, q[i])`. In the scope, `n` = live rows, `adl` = their mean `dl` (at least 1), `d[i]` = rows
with `f[i] > 0`. Then, with natural logarithms:

    idf[i] = log(1 + (n - d[i] + 0.5) / (d[i] + 0.5))
    bm25   = sum(w[i] * idf[i] * f[i] * (K1 + 1) / (f[i] + K1 * (1 - B + B * dl / adl)))
    share  = sum(w[i] * idf[i] * f[i] / (f[i] + SHARE_K)) / sum(w[i] * idf[i])
    exact  = any x[i] with f[i] > 0

A term that no row holds has the highest idf: it adds nothing to a row and lowers the share of every row, which is what
tells a topic that was never stored from one that was. The leg is ordered by `exact DESC, bm25 DESC, key`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from loom_memory.domain.analyzer import AnalyzedQuery

K1 = 1.2
"""BM25's term saturation. Source: the usual value; .9 gained under .005 (measured: bench/locomo.py, 2026-11-30)."""

B = 0.75
"""BM25's length normalisation. Source: the usual value."""

SHARE_K = 0.25
"""Saturation of the share: one occurrence counts .8 of the best possible, two .89, four .94."""


MATCH = 0.28
"""Score from which a row answers a query. Alone that is a cosine of .47 with MiniLM, or a share of .28.

Source: measured with the calibrated floor of MiniLM, 2026-11-30, on 378 questions of four LoCoMo conversations and 160
about topics that none has: the best row of the conversation reaches it for 96.3 % of the former and .6 % of the latter
(at .25: 97.4 and 2.5 %).
"""


GOOD = 0.12
"""Score under which no hit is good, whatever else was found: just above noise.

Source: measured, 2026-11-30, on PrecisionMemBench, by which both constants were chosen. At MiniLM's noise floor of .2
.958 of what is wanted is kept at a precision of .646, at one of .25 .951 at .708; with a floor of .2 and a share of .5
they would be .944 at .734 and .909 at .715. Every hit that is shown: all of it, at .53.
"""

GOOD_SHARE = 0.4
"""Share of the best hit's score under which a hit is none beside it. Source: as `GOOD`."""


@dataclass(frozen=True, slots=True)
class LexicalStatistics:
    """What BM25 knows of the scope: `rows` live rows, `mean_dl`, and `df[i]` rows that hold the query's term i."""

    rows: int
    mean_dl: float
    df: Sequence[int]


@dataclass(frozen=True, slots=True)
class LexicalMatch:
    """The lexical leg's numbers for one row: `bm25` from 0, `share` 0 to 1, `exact` = a whole identifier matched."""

    bm25: float
    share: float
    exact: bool


def lexical_match(
    query: AnalyzedQuery, term_ids: Sequence[int], dl: int, statistics: LexicalStatistics
) -> LexicalMatch:
    """Returns the reference BM25, share and exactness of one row for a query."""
    length = 1 - B + B * dl / max(statistics.mean_dl, 1.0)
    bm25 = matched = best = 0.0
    exact = False
    for term, rows_with_term in zip(query.terms, statistics.df, strict=True):
        idf = math.log(1 + (statistics.rows - rows_with_term + 0.5) / (rows_with_term + 0.5))
        count = term_ids.count(term.term_id)
        best += term.weight * idf
        bm25 += term.weight * idf * count * (K1 + 1) / (count + K1 * length)
        matched += term.weight * idf * count / (count + SHARE_K)
        exact = exact or (term.is_identifier and count > 0)
    return LexicalMatch(bm25, matched / best if best else 0.0, exact)


def score(cosine: float | None, share: float | None, *, noise_floor: float) -> float:
    """Returns the shown score of a hit, 0 to 1, the same function in every search mode.

    `1 - (1 - closeness) * (1 - share)` with `closeness = (cosine - noise_floor) / (1 - noise_floor)`, both kept within
    0 and 1: either kind of evidence is enough, and more of either never lowers it. None = no such leg.
    """
    closeness = 0.0 if cosine is None else (cosine - noise_floor) / (1 - noise_floor)
    return 1 - (1 - _unit(closeness)) * (1 - _unit(share or 0.0))


def is_good(own: float, best: float) -> bool:
    """Says whether a hit is good: good enough by itself, and not far behind the best hit of its search.

    Stricter than `MATCH` beside a clear answer, and milder where a long question holds much that no text answers.

    Args:
        own: Its score.
        best: The highest score of the search.
    """
    return own >= max(GOOD, GOOD_SHARE * best)


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))
