"""Puts what is known of memories into one order: the ranking of the texts, and what moves a hit beside."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from loom_memory.app.search.legs import Evidence, candidate
from loom_memory.app.search.run import SearchRun
from loom_memory.domain import ranking, scoring, signals
from loom_memory.domain.intents import Intent
from loom_memory.domain.memory import Identity, Sketch
from loom_memory.domain.ranking import Candidate, Ranked
from loom_memory.domain.signals import Facts

_NOTHING: Final[Mapping[str, float]] = MappingProxyType({})

_WORDING: Final = 0.02
"""What a hit loses that only another wording of the question found. Source: chosen; it breaks ties for the question."""

_SURE: Final = 0.5
"""From here on a memory is surely enough about a thing to answer a question that names it. Source: chosen."""


class Placed(NamedTuple):
    """A memory in its place.

    Attributes:
        order: Only its order within one search means anything.
        score: The shown score, 0 to 1.
        is_low: Whether it may be no answer.
        is_shown: Whether it is shown at all.
        components: What its place is made of, by name.
    """

    sketch: Sketch
    order: float
    score: float
    cosine: float | None
    is_low: bool
    is_shown: bool
    components: Mapping[str, float] = _NOTHING

    @property
    def identity(self) -> Identity:
        """Which memory it is."""
        return self.sketch.identity


def placed(run: SearchRun, evidence: Mapping[Identity, Evidence]) -> list[Placed]:
    """Orders memories, best first, and leaves out those whose validity has ended where such are not wanted."""
    kept = {
        identity: known
        for identity, known in evidence.items()
        if run.query.shows_superseded or not signals.has_ended(known.sketch.invalid_at, run.now)
    }
    candidates = [candidate(known) for known in kept.values()]
    ranked = ranking.rank(candidates, run.cues, noise_floor=run.noise_floor)
    alone = _without_sessions(run, candidates)
    hits = [_placed(run, each, kept[Identity(*each.candidate.key)], alone) for each in ranked]
    # Sorting keeps the ranking's own order of ties.
    return sorted(hits, key=lambda hit: -round(hit.order, 6))


def merged(own: Sequence[Placed], others: Iterable[Sequence[Placed]]) -> list[Placed]:
    """Merges what other wordings of the question found into what it found itself."""
    best = {hit.identity: hit for hit in own}
    for wording in others:
        for hit in wording:
            known = best.get(hit.identity)
            lowered = hit._replace(order=hit.order - _WORDING, components={**hit.components, "wording": -_WORDING})
            if known is None or lowered.order > known.order:
                score = max(hit.score, known.score if known else 0.0)
                is_low = hit.is_low and (known is None or known.is_low)
                is_shown = hit.is_shown or (known is not None and known.is_shown)
                best[hit.identity] = lowered._replace(score=score, is_low=is_low, is_shown=is_shown)
    return sorted(best.values(), key=lambda hit: (-round(hit.order, 6), hit.identity))


def _placed(run: SearchRun, ranked: Ranked, known: Evidence, alone: Mapping[tuple[str, ...], float]) -> Placed:
    added = signals.signals(_facts(run, known), run.weights, run.now, asks_latest=run.intent is Intent.LATEST)
    added.update(_reweighed(run, ranked, alone))
    is_named = known.has_key or known.has_tag or known.entity >= _SURE or (known.is_timely and run.only_time)
    score = max(ranked.score, signals.NAMED_SCORE) if is_named else ranked.score
    is_exact = ranked.candidate.exact
    return Placed(
        sketch=known.sketch,
        order=ranked.order + sum(added.values()),
        score=score,
        cosine=ranked.candidate.cosine,
        is_low=score < scoring.MATCH and not is_exact,
        is_shown=is_named or _is_shown(ranked),
        components=_components(ranked, added) if run.query.explain else {},
    )


def _is_shown(ranked: Ranked) -> bool:
    """Says whether a hit is worth showing.

    A turn may be, for what stands around it; what stands in no session has nothing but its own words, and would pad.
    """
    return ranked.is_shown and (
        ranked.score >= ranking.MIN_SHOWN or not ranked.is_low or bool(ranked.candidate.session)
    )


def _components(ranked: Ranked, added: Mapping[str, float]) -> dict[str, float]:
    own = ranked.candidate
    cosine = {} if own.cosine is None else {"cosine": own.cosine}
    return {**cosine, "lexical": own.share, "bm25": own.bm25, "fused": ranked.order, **added}


def _facts(run: SearchRun, known: Evidence) -> Facts:
    sketch = known.sketch
    return Facts(
        kind=sketch.kind,
        at=sketch.at,
        importance=sketch.importance,
        pinned=sketch.pinned,
        invalid_at=sketch.invalid_at,
        said=bool(sketch.speaker and sketch.identity.session_id),
        use=run.uses.get(sketch.identity, signals.NO_USE),
        in_time=any(phrase.span.holds(sketch.at) for phrase in run.times),
        entity=known.entity,
        has_key=known.has_key,
        has_tag=known.has_tag,
    )


def _reweighed(run: SearchRun, ranked: Ranked, alone: Mapping[tuple[str, ...], float]) -> dict[str, float]:
    """Returns what weights other than 1 add to the ranking of the texts."""
    weights, own = run.weights, ranked.candidate
    if weights.vector == weights.lexical == weights.exact == 1.0 and not alone:
        return {}
    changes = {
        "vector_weight": (weights.vector - 1) * (own.cosine or 0.0) * (1 - ranking.LEXICAL),
        "lexical_weight": (weights.lexical - 1) * own.share * ranking.LEXICAL,
        "exact_weight": (weights.exact - 1) * ranking.EXACT * own.exact,
    }
    if own.key in alone:
        changes["session_weight"] = (weights.session - 1) * (ranked.order - alone[own.key])
    return {name: round(value, 6) for name, value in changes.items() if round(value, 6)}


def _without_sessions(run: SearchRun, candidates: Sequence[Candidate]) -> dict[tuple[str, ...], float]:
    """Returns each candidate's order as if it stood alone, where sessions count otherwise than measured."""
    if run.weights.session == 1.0:
        return {}
    lone = [each._replace(session=(), position=None) for each in candidates]
    return {each.candidate.key: each.order for each in ranking.rank(lone, run.cues, noise_floor=run.noise_floor)}
