"""Finding procedures and learnings for a situation: near to it in meaning, or sharing its words."""

from typing import Final

from loom_common.call import Scope
from loom_common.together import both
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.item_vectors import ItemVectors
from loom_memory.app.owned_items import readable_users
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.domain.analyzer import analyze_query
from loom_memory.procedures.app.procedures import Procedures
from loom_memory.procedures.domain.procedures import MIN_SIMILARITY, PLANE, ProcedureHit, fits_by_words, ranked
from loom_memory.procedures.store.procedures import ProcedureRepository

__all__ = ["ProcedureHit", "ProcedureMatch"]

# Procedures that hold some word, of which the rule takes its pick. Source: chosen.
_WITH_WORDS: Final = 100
# What is read more than asked for, so that experience can change the order.
_MORE: Final = 3


class ProcedureMatch:
    """Matches situations with procedures that the running call may read."""

    def __init__(
        self,
        rows: ProcedureRepository,
        procedures: Procedures,
        vectors: ItemVectors,
        embedding: EmbeddingPort,
        thresholds: ThresholdsInForce,
    ) -> None:
        self._rows = rows
        self._procedures = procedures
        self._vectors = vectors
        self._embedding = embedding
        self._thresholds = thresholds

    async def match(self, scope: Scope, situation: str, top_k: int = 5) -> tuple[ProcedureHit, ...]:
        """Returns what fits a situation, best first.

        Raises:
            LoomError: The situation cannot be embedded, or the store does not answer.
        """
        users = readable_users(None)
        if not situation.strip() or (users is not None and not users):
            return ()
        terms = analyze_query(situation).terms
        ids = [term.term_id for term in terms]
        vector, worded = await both(
            self._embedding.embed_query(situation), self._rows.with_words(scope, ids, users, _WITH_WORDS)
        )
        served = await self._embedding.served_model()
        least = max(MIN_SIMILARITY, await self._thresholds.noise_floor(scope, served))
        near = await self._vectors.near(
            scope, PLANE, vector, users=users, agents=None, least=least, limit=top_k * _MORE
        )
        by_words = {one.id: share for one in worded for fits, share in [fits_by_words(terms, one)] if fits}
        known = [one for one in worded if one.id in by_words]
        known += await self._rows.by_ids(scope, [one for one in near if one not in by_words])
        unknown = [one for one in by_words if one not in near]
        near |= await self._vectors.similarities(scope, PLANE, vector, unknown)
        hits = [
            ProcedureHit(one, near.get(one.id), one.id in by_words, by_words.get(one.id, 0.0))
            for one in await self._procedures.counted(scope, known)
        ]
        return ranked(hits, top_k)
