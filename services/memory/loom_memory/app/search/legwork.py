"""Runs the legs of a search side by side and puts what they found into one order. No model takes part."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from loom_common.errors import LoomError
from loom_common.together import both
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.search.legs import Evidence, Legs
from loom_memory.app.search.placing import Placed, placed
from loom_memory.app.search.ports import EntityLeg
from loom_memory.app.search.query import SearchMode
from loom_memory.app.search.run import SCAN_EXTRA, SearchRun
from loom_memory.domain import ranking
from loom_memory.domain.analyzer import analyze_query
from loom_memory.domain.entities import named_in
from loom_memory.domain.memory import Identity
from loom_memory.domain.query_cues import TOPIC_SHARE, topic_of
from loom_memory.domain.recipes import Recipe
from loom_memory.domain.vectors import leaning
from loom_memory.store.embeddings import QueryVector, VectorHit
from loom_memory.store.legs import NamedHit
from loom_memory.store.memories import LexicalHit, Neighbour

logger = logging.getLogger(__name__)

_MAX_NAMED: Final = 50


@dataclass(frozen=True, slots=True)
class Looked:
    """What the legs found for one wording, in order; `counts` says how much each found, of whatever version."""

    placed: list[Placed] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def best_cosine(self) -> float:
        """The nearest meaning; -1 where none was compared."""
        return max((hit.cosine for hit in self.placed if hit.cosine is not None), default=-1.0)


@dataclass(frozen=True, slots=True)
class _Beside:
    """What is found by what the question names."""

    named: Sequence[NamedHit] = ()
    entities: Mapping[Identity, float] = field(default_factory=dict)
    timely: Sequence[Identity] = ()


class Legwork:
    """Looks for one wording of a question."""

    def __init__(self, embedding: EmbeddingPort, entities: EntityLeg) -> None:
        self._embedding = embedding
        self._entities = entities

    async def look(self, run: SearchRun, names: Sequence[str] = ()) -> Looked:
        """Returns what the run's wording finds; `names` are things that it is known to be about.

        Raises:
            EmbedTimeout: The wording's embedding did not come in its bound.
            BackendUnavailable: The store or embedding cannot be reached.
        """
        (lexical, (vector, near)), beside = await both(
            both(self._lexical(run), self._vector(run)), self._beside(run, names)
        )
        legs = _legs(lexical, near, beside)
        evidence = await self._evidence(run, vector, legs)
        if vector is not None and run.may_lack(near, evidence):
            near = await self._nearest_live(run, vector)
            legs = _legs(lexical, near, beside)
            evidence = await self._evidence(run, vector, legs)
        return Looked(placed(run, evidence), legs.counts()) if evidence else Looked()

    async def _lexical(self, run: SearchRun) -> list[LexicalHit]:
        if run.query.mode is SearchMode.VECTOR or not run.weights.lexical:
            return []
        analyzed = analyze_query(run.cues.text)
        if not analyzed.terms:
            return []
        return await run.rows.lexical(run.scope, run.query.wanted, run.now, analyzed, run.statistics, run.pool)

    async def _vector(self, run: SearchRun) -> tuple[QueryVector | None, list[VectorHit]]:
        if run.served is None:
            return None, []
        vector = QueryVector(run.served.name, await self._meaning(run.cues.text))
        if run.query.wanted.is_beyond_identity:
            return vector, await self._nearest_live(run, vector)
        return vector, await run.vectors.nearest(run.scope, run.query.wanted, vector, run.scan_limit)

    async def _meaning(self, text: str) -> Sequence[float]:
        """Returns the vector to search with; what is asked of whom a question names counts beside the name."""
        topic = topic_of(text)
        if not topic:
            return await self._embedding.embed_query(text)
        # Side by side, so that they share a batch.
        whole, asked = await both(self._embedding.embed_query(text), self._embedding.embed_query(topic))
        return leaning(whole, asked, TOPIC_SHARE)

    async def _nearest_live(self, run: SearchRun, vector: QueryVector) -> list[VectorHit]:
        return await run.vectors.nearest_live(run.scope, run.query.wanted, run.now, vector, run.pool)

    async def _beside(self, run: SearchRun, names: Sequence[str]) -> _Beside:
        named, (entities, timely) = await both(self._named(run), both(self._about(run, names), self._timely(run)))
        return _Beside(named, entities, timely)

    async def _named(self, run: SearchRun) -> list[NamedHit]:
        if not run.names or not run.weights.exact or run.query.mode is SearchMode.VECTOR:
            return []
        return await run.legs.named(run.scope, run.query.wanted, run.now, run.names, _MAX_NAMED)

    async def _about(self, run: SearchRun, names: Sequence[str]) -> Mapping[Identity, float]:
        if not run.query.plan.entities or not run.weights.entity or run.query.mode is not SearchMode.HYBRID:
            return {}
        # Most questions name nothing that is written like a name, and must not wait for a statement that finds nothing.
        if run.query.recipe is not Recipe.GRAPH and not names and not named_in(run.query.text):
            return {}
        try:
            return await self._entities.find(run.scope, run.query.wanted, run.query.text, names, run.pool)
        except LoomError as error:
            # What is known of entities is derived, and the other legs answer without it.
            logger.warning("entity_leg_failed", extra={"reason": error.reason.value})
            return {}

    async def _timely(self, run: SearchRun) -> list[Identity]:
        if not run.times or not run.weights.time:
            return []
        found: dict[Identity, None] = {}
        for phrase in run.times:
            rows = await run.legs.within(run.scope, run.query.wanted, run.now, phrase.span, run.pool)
            found.update(dict.fromkeys(rows))
        return list(found)

    async def _evidence(self, run: SearchRun, vector: QueryVector | None, legs: Legs) -> dict[Identity, Evidence]:
        """Returns what is known of each memory that is shown now and that a leg found, and of the rows around the best.

        Every cosine that a leg did not reach is read as well, so that all are ranked and scored alike.
        """
        around = await self._around(run, legs)
        found = legs.identities(run.pool + SCAN_EXTRA)
        wanted = list(dict.fromkeys([*found, *(neighbour.identity for neighbour in around)]))
        unknown = [] if vector is None else legs.without_cosine(around)
        sketches, cosines = await both(
            run.rows.sketches(run.scope, run.query.wanted, wanted, run.now), self._cosines(run, vector, unknown)
        )
        positions = {neighbour.identity: neighbour.position for neighbour in around}
        evidence: dict[Identity, Evidence] = {}
        for identity, sketch in sketches.items():
            known = legs.evidence(sketch, run.settled)
            if known.is_found or identity in positions:
                known.position = positions.get(identity)
                if known.cosine is None:
                    known.cosine = cosines.get((identity, sketch.version))
                evidence[identity] = known
        return evidence if any(known.is_found for known in evidence.values()) else {}

    async def _around(self, run: SearchRun, legs: Legs) -> list[Neighbour]:
        """Returns the best rows of the legs that stand in a session, and the rows around them there."""
        if not run.query.plan.neighbours or not run.weights.session:
            return []
        seeds = [Identity(*key) for key in ranking.seeds(legs.found())]
        return await run.rows.neighbours(run.scope, run.query.wanted, run.now, seeds, run.statistics)

    async def _cosines(
        self, run: SearchRun, vector: QueryVector | None, identities: Sequence[Identity]
    ) -> dict[tuple[Identity, int], float]:
        return {} if vector is None else await run.vectors.cosines(run.scope, vector, identities)


def _legs(lexical: Sequence[LexicalHit], near: Sequence[VectorHit], beside: _Beside) -> Legs:
    return Legs(lexical, near, beside.named, beside.entities, beside.timely)
