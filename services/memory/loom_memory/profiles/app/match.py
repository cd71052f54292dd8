"""Finding sections of profiles: by words, then by meaning."""

from dataclasses import dataclass
from typing import Final

from loom_common.call import Scope
from loom_common.together import both
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.item_vectors import ItemVectors
from loom_memory.app.owned_items import readable_users
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.domain.analyzer import analyze_query
from loom_memory.profiles.domain.matching import MIN_SIMILARITY, ProfileHit, matches_by_words, ranked
from loom_memory.profiles.domain.sections import PLANE, ProfileSection
from loom_memory.profiles.store.sections import SectionRepository

__all__ = ["ProfileFindings", "ProfileHit", "ProfileMatch", "ProfileQuery"]

# Sections that hold some word, of which the rule takes its pick. Source: chosen.
_WITH_WORDS: Final = 200


@dataclass(frozen=True, slots=True)
class ProfileQuery:
    """What is looked for.

    Attributes:
        user_id: Keeps the namespace's own sections and this user's; empty keeps every user's.
        agent: Keeps the namespace's own sections and this agent's; empty keeps every agent's.
        min_similarity: Cosine from which a section answers without its words; None for the one in force.
    """

    text: str
    top_k: int = 5
    user_id: str = ""
    agent: str = ""
    min_similarity: float | None = None


@dataclass(frozen=True, slots=True)
class ProfileFindings:
    """Sections that answer, best first."""

    hits: tuple[ProfileHit, ...] = ()


class ProfileMatch:
    """Matches queries with sections that the running call may read.

    Args:
        least: The deployment's least cosine; None for the tuned one, never below the model's noise.
    """

    def __init__(
        self,
        sections: SectionRepository,
        vectors: ItemVectors,
        embedding: EmbeddingPort,
        thresholds: ThresholdsInForce,
        least: float | None,
    ) -> None:
        self._sections = sections
        self._vectors = vectors
        self._embedding = embedding
        self._thresholds = thresholds
        self._least = least

    async def match(self, scope: Scope, query: ProfileQuery) -> ProfileFindings:
        """Returns what answers.

        Raises:
            LoomError: The query cannot be embedded, or the store does not answer.
        """
        users = readable_users({"", query.user_id} if query.user_id else None)
        agents = {"", query.agent} if query.agent else None
        if not query.text.strip() or (users is not None and not users):
            return ProfileFindings()
        terms = analyze_query(query.text).terms
        ids = [term.term_id for term in terms]
        (vector, least), worded = await both(
            both(self._embedding.embed_query(query.text), self._floor(scope, query.min_similarity)),
            self._sections.with_words(scope, ids, users, agents, _WITH_WORDS),
        )
        near = await self._vectors.near(
            scope, PLANE, vector, users=users, agents=agents, least=least, limit=query.top_k
        )
        found: dict[str, tuple[ProfileSection, bool, float]] = {}
        for section in worded:
            by_words, share = matches_by_words(terms, section)
            if by_words:
                found[section.id] = section, True, share
        for section in await self._sections.by_ids(scope, [one for one in near if one not in found]):
            found[section.id] = section, False, 0.0
        unknown = [one for one in found if one not in near]
        near |= await self._vectors.similarities(scope, PLANE, vector, unknown)
        hits = [
            ProfileHit(section, near.get(section.id), by_words, share) for section, by_words, share in found.values()
        ]
        return ProfileFindings(ranked(hits, query.top_k))

    async def _floor(self, scope: Scope, asked: float | None) -> float:
        if asked is not None:
            return asked
        if self._least is not None:
            return self._least
        served = await self._embedding.served_model()
        return max(MIN_SIMILARITY, await self._thresholds.noise_floor(scope, served))
