"""What the statements of a search answer, from a shard; each says the same as the statement of its name."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loom_memory.domain.analyzer import AnalyzedQuery
from loom_memory.domain.memory import Filter, Identity, Memory, Sketch
from loom_memory.domain.names import NamedExactly
from loom_memory.domain.narrowing import Span
from loom_memory.domain.ranking import WINDOW
from loom_memory.domain.scoring import K1, SHARE_K, B
from loom_memory.store.embeddings import VectorHit
from loom_memory.store.legs import NamedHit
from loom_memory.store.memories import (
    LEAST_ROWS,
    LONGEST_SESSION,
    MAX_NEIGHBOURS,
    MAX_SPEAKERS,
    LexicalHit,
    Neighbour,
    Statistics,
)
from loom_memory.tier.packing import memory_of, sketch_of
from loom_memory.tier.selecting import Mask, owned, shown, with_tag, within
from loom_memory.tier.shard import Shard, key_number
from loom_memory.tier.vectors import NOBODY, Scanned, Vector

# Above every BM25, so that one number orders whole identifiers first. Source: chosen; 64 terms give some thousands.
_EXACT: Final = 1e6


def statistics(shard: Shard, wanted: Filter, now: datetime) -> Statistics:
    """See `MemoryRepository.statistics`."""
    keep = shown(shard, wanted, now)
    rows = int(np.count_nonzero(keep))
    if not rows:
        return Statistics(0, 1.0, ())
    spoken = np.flatnonzero(np.bincount(shard.columns["speaker"][: len(keep)][keep]))
    names = shard.speakers.values()
    speakers = sorted(names[code] for code in spoken if names[code])[:MAX_SPEAKERS]
    return Statistics(rows, max(float(shard.columns["dl"][: len(keep)][keep].mean()), 1.0), tuple(speakers))


def lexical(
    shard: Shard, wanted: Filter, now: datetime, query: AnalyzedQuery, known: Statistics, limit: int
) -> list[LexicalHit]:
    """See `MemoryRepository.lexical`; `domain.scoring` has the formulas."""
    keep = shown(shard, wanted, now)
    count = len(keep)
    bm25, share, exact = np.zeros(count), np.zeros(count), np.zeros(count, np.bool_)
    lengths = shard.columns["dl"]
    best = 0.0
    for term in query.terms:
        places, counts = _kept(shard, keep, term.term_id)
        rows_with_term = len(places)
        rows = max(float(max(known.rows, LEAST_ROWS)), rows_with_term)
        weight = term.weight * math.log(1 + (rows - rows_with_term + 0.5) / (rows_with_term + 0.5))
        best += weight
        if not rows_with_term:
            continue
        length = 1 - B + B * lengths[places] / known.mean_dl
        bm25[places] += weight * counts * (K1 + 1) / (counts + K1 * length)
        share[places] += weight * counts / (counts + SHARE_K)
        if term.is_identifier:
            exact[places] = True
    order = bm25 + _EXACT * exact
    found = _highest(order, np.flatnonzero(order), limit)
    versions = shard.columns["version"]
    hits = [
        LexicalHit(identity, int(versions[place]), float(bm25[place]), float(share[place]) / best, bool(exact[place]))
        for place, identity in _identified(shard, found)
    ]
    hits.sort(key=lambda hit: (not hit.exact, -hit.bm25, hit.identity))
    return hits[:limit]


def nearest(shard: Shard, wanted: Filter, scanned: Scanned, limit: int) -> list[VectorHit]:
    """See `EmbeddingRepository.nearest`; what is superseded or deleted does not come."""
    mine = owned(shard, wanted)
    owners = scanned.owners
    is_wanted = owners != NOBODY
    if mine is not None:
        # A vector of a row that came meanwhile has no place in the mask yet.
        is_wanted &= owners < len(mine)
        is_wanted &= np.append(mine, False)[np.minimum(owners, len(mine))]
    found = _highest(scanned.cosines, np.flatnonzero(is_wanted), limit)
    return _hits(shard, [(int(owners[place]), float(scanned.cosines[place])) for place in found])[:limit]


def nearest_live(shard: Shard, wanted: Filter, now: datetime, scanned: Scanned, limit: int) -> list[VectorHit]:
    """See `EmbeddingRepository.nearest_live`."""
    keep = np.append(shown(shard, wanted, now), False)
    owners = scanned.owners
    # The owner of nobody's vectors and a row that came meanwhile both point at the entry that is never kept.
    points = np.where((owners == NOBODY) | (owners >= len(keep) - 1), len(keep) - 1, owners)
    best = np.full(len(keep), -np.inf, np.float32)
    wanted_vectors = np.flatnonzero(keep[points])
    np.maximum.at(best, points[wanted_vectors], scanned.cosines[wanted_vectors])
    found = _highest(best, np.flatnonzero(best > -np.inf), limit)
    return _hits(shard, [(int(place), float(best[place])) for place in found])[:limit]


def cosines(shard: Shard, query: Vector, identities: Sequence[Identity]) -> dict[tuple[Identity, int], float]:
    """See `EmbeddingRepository.cosines`; only current versions come."""
    found: dict[tuple[Identity, int], float] = {}
    for identity, place in shard.places(identities):
        vectors = shard.vectors.places(shard.columns.get("last_vector", place))
        if vectors:
            best = max(shard.vectors.cosine(each, query) for each in vectors)
            found[identity, shard.columns.get("version", place)] = best
    return found


def sketches(shard: Shard, wanted: Filter, identities: Sequence[Identity], now: datetime) -> dict[Identity, Sketch]:
    """See `MemoryRepository.sketches`."""
    return {identity: sketch_of(packed) for identity, packed in _packed(shard, wanted, identities, now)}


def current(shard: Shard, identities: Sequence[Identity]) -> dict[Identity, Memory]:
    """See `MemoryRepository.current`; deleted ones do not come."""
    found = [(identity, shard.packed[place]) for identity, place in shard.places(identities)]
    return {identity: memory_of(packed) for identity, packed in found if packed is not None}


def fetch(shard: Shard, wanted: Filter, identities: Sequence[Identity], now: datetime) -> dict[Identity, Memory]:
    """See `MemoryRepository.fetch`."""
    return {identity: memory_of(packed) for identity, packed in _packed(shard, wanted, identities, now)}


def neighbours(shard: Shard, wanted: Filter, now: datetime, seeds: Sequence[Identity]) -> list[Neighbour]:
    """See `MemoryRepository.neighbours`."""
    threads: dict[tuple[str, str], set[int]] = {}
    for seed, place in shard.places(seeds):
        if seed.session_id:
            threads.setdefault((seed.user_id, seed.session_id), set()).add(place)
    if not threads:
        return []
    keep = shown(shard, wanted, now)
    found: list[Neighbour] = []
    for _, seed_places in sorted(threads.items()):
        found += _around(shard, keep, seed_places)
    return found[:MAX_NEIGHBOURS]


def named(shard: Shard, wanted: Filter, now: datetime, names: NamedExactly, limit: int) -> list[NamedHit]:
    """See `LegRepository.named`."""
    keep = shown(shard, wanted, now)
    numbers = np.array([key_number(key) for key in names.keys], np.int64)
    has_key = np.isin(shard.columns["key"][: len(keep)], numbers)
    has_tag = with_tag(shard, names.tags)[: len(keep)]
    updated = shard.columns["updated"]
    found = [
        (identity.key in names.keys, bool(has_tag[place]), int(updated[place]), identity)
        for place, identity in _identified(shard, np.flatnonzero(keep & (has_key | has_tag)))
    ]
    found = sorted((each for each in found if each[0] or each[1]), key=lambda each: (not each[0], -each[2], each[3]))
    return [NamedHit(identity, is_key, is_tag) for is_key, is_tag, _, identity in found[:limit]]


def happened_within(shard: Shard, wanted: Filter, now: datetime, span: Span, limit: int) -> list[Identity]:
    """See `LegRepository.within`."""
    at = shard.columns["at"]
    keep = shown(shard, wanted, now)
    for condition in within(at, span):
        keep &= condition[: len(keep)]
    found = _highest(at, np.flatnonzero(keep), limit)
    ordered = sorted((-int(at[place]), identity) for place, identity in _identified(shard, found))
    return [identity for _, identity in ordered[:limit]]


def _around(shard: Shard, keep: Mask, seeds: set[int]) -> list[Neighbour]:
    columns = shard.columns
    members = shard.members(columns.get("thread", next(iter(seeds))))
    members = members[members < len(keep)]
    if len(members) > LONGEST_SESSION:
        return []
    members = members[keep[members]]
    # As the statement sorts: by time, then by when each was first written, then by version, of which no two are alike.
    order = np.lexsort((columns["version"][members], columns["created"][members], columns["at"][members]))
    members = members[order]
    is_near = np.zeros(len(members), np.bool_)
    for position in np.flatnonzero(np.isin(members, list(seeds))):
        is_near[max(0, position - WINDOW) : position + WINDOW + 1] = True
    near = np.flatnonzero(is_near)
    places = members[near]
    identified = dict(_identified(shard, places))
    versions = columns["version"]
    return [
        Neighbour(identified[place], int(versions[place]), int(position) + 1)
        for position, place in zip(near, places.tolist(), strict=True)
        if place in identified
    ]


def _kept(shard: Shard, keep: Mask, term_id: int) -> tuple[NDArray[Any], NDArray[Any]]:
    places, counts = shard.postings.of(term_id)
    count = min(len(places), len(counts))
    places, counts = places[:count], counts[:count]
    is_kept = places < len(keep)
    if not is_kept.all():  # rows that came while this read
        places, counts = places[is_kept], counts[is_kept]
    is_shown = keep[places]
    return places[is_shown], counts[is_shown].astype(np.float64)


def _highest(values: NDArray[Any], places: NDArray[Any], limit: int) -> NDArray[Any]:
    """Returns those of `places` with the highest values, at least `limit` where there are so many: ties come whole."""
    if len(places) <= limit:
        return places
    among = values[places]
    least = np.partition(among, len(among) - limit)[len(among) - limit]
    highest: NDArray[Any] = places[among >= least]
    return highest


def _hits(shard: Shard, found: Sequence[tuple[int, float]]) -> list[VectorHit]:
    versions = shard.columns["version"]
    cosine_of = sorted(found, key=lambda each: -each[1])
    identities = dict(_identified(shard, [place for place, _ in cosine_of]))
    hits = [
        VectorHit(identities[place], int(versions[place]), cosine) for place, cosine in cosine_of if place in identities
    ]
    hits.sort(key=lambda hit: (-hit.cosine, hit.identity, hit.version))
    return hits


def _identified(shard: Shard, places: Sequence[int] | NDArray[Any]) -> list[tuple[int, Identity]]:
    """Returns the identities of those places whose rows are still there."""
    return [(int(place), shard.identity(place)) for place in places if shard.packed[place] is not None]


def _packed(
    shard: Shard, wanted: Filter, identities: Sequence[Identity], now: datetime
) -> list[tuple[Identity, bytes]]:
    """Returns the rows of those of `identities` that are shown and pass the filter."""
    if not identities:
        return []
    keep = shown(shard, wanted, now)
    found = []
    for identity, place in shard.places(identities):
        packed = shard.packed[place]
        if packed is not None and place < len(keep) and keep[place]:
            found.append((identity, packed))
    return found
