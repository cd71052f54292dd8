"""Finding what was said: near to a question in meaning, or holding its words, whoever said it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from loom_common.call import Scope
from loom_common.errors import InvalidArgument
from loom_common.together import both
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.item_vectors import ItemVectors
from loom_memory.app.owned_items import readable_users
from loom_memory.app.search.abstention import BELOW_FLOOR, EMPTY_NAMESPACE, NO_MATCH
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.conversations.domain.conversations import (
    MIN_SIMILARITY,
    PLANE,
    Turn,
    TurnHit,
    answers,
    passages,
    share_of,
    shown_score,
    turn_of_vector,
    vector_id,
    vectors_of,
)
from loom_memory.conversations.store.conversations import ConversationRepository
from loom_memory.domain.analyzer import analyze_query

__all__ = ["ConversationFindings", "ConversationQuery", "ConversationSearch", "TurnHit"]

# Source: chosen, as for memories; several passages may be one turn's.
_POOL: Final = 60
_PASSAGES: Final = 4


@dataclass(frozen=True, slots=True)
class ConversationQuery:
    """What is looked for.

    Attributes:
        author: Whose turns; empty for every author's.
        conversation_id: In which conversation; empty for all.
        min_similarity: Cosine from which a turn answers; None for the setting's.
    """

    text: str
    top_k: int = 5
    author: str = ""
    conversation_id: str = ""
    min_similarity: float | None = None


@dataclass(frozen=True, slots=True)
class ConversationFindings:
    """What was found.

    Attributes:
        withheld: Turns that were found and do not answer.
        abstain_code: Why there is nothing; empty where there is something.
    """

    hits: tuple[TurnHit, ...] = ()
    withheld: int = 0
    abstain_code: str = ""


class ConversationSearch:
    """Searches turns that the running call may read.

    Args:
        least: Cosine from which a turn answers, whatever the model's noise; None for the design's own above the noise.
    """

    def __init__(
        self,
        rows: ConversationRepository,
        vectors: ItemVectors,
        embedding: EmbeddingPort,
        thresholds: ThresholdsInForce,
        least: float | None = None,
    ) -> None:
        self._rows = rows
        self._vectors = vectors
        self._embedding = embedding
        self._thresholds = thresholds
        self._least = least

    async def search(self, scope: Scope, query: ConversationQuery) -> ConversationFindings:
        """Returns turns that answer, best first; each turn once, by its nearest passage.

        Raises:
            InvalidArgument: The query is blank.
            LoomError: It cannot be embedded, or the store does not answer.
        """
        if not query.text.strip():
            raise InvalidArgument.of("query", "must hold text")
        users = readable_users(None)
        if users is not None and not users:
            return ConversationFindings(abstain_code=EMPTY_NAMESPACE)
        terms = analyze_query(query.text).terms
        pool = max(_POOL, 2 * query.top_k)
        vector, worded = await both(
            self._embedding.embed_query(query.text),
            self._rows.with_words(
                scope, [term.term_id for term in terms], users, query.conversation_id, query.author, pool
            ),
        )
        served = await self._embedding.served_model()
        noise_floor = await self._thresholds.noise_floor(scope, served)
        near = await self._near(scope, query, vector, worded, users, noise_floor, pool)
        turns = {(one.conversation_id, one.id): one for one in worded}
        unread = [place for place in near if place not in turns]
        found = await self._rows.found(scope, unread, users, query.conversation_id, query.author)
        turns |= {(one.conversation_id, one.id): one for one in found}
        floor = self._floor(query, noise_floor)
        judged = [(one, near.get(place), share_of(terms, one.text)) for place, one in turns.items()]
        kept = [each for each in judged if answers(each[1], each[2], floor=floor)]
        hits = await self._hits(scope, kept, noise_floor, query.top_k)
        code = "" if hits else await self._why_nothing(scope, users, is_below=bool(judged))
        return ConversationFindings(hits, len(judged) - len(kept), code)

    def _floor(self, query: ConversationQuery, noise_floor: float) -> float:
        asked = self._least if query.min_similarity is None else query.min_similarity
        return max(MIN_SIMILARITY, noise_floor) if asked is None else asked

    async def _near(
        self,
        scope: Scope,
        query: ConversationQuery,
        vector: Sequence[float],
        worded: Sequence[Turn],
        users: Collection[str] | None,
        noise_floor: float,
        pool: int,
    ) -> dict[tuple[str, str], float]:
        """Returns the cosine of the nearest passage of turns that are near, and of those that hold words."""
        least = min(self._floor(query, noise_floor), max(noise_floor, 0.0))
        found = await self._vectors.near(
            scope,
            PLANE,
            vector,
            users=users,
            agents={query.author} if query.author else None,
            least=least,
            limit=pool * _PASSAGES,
            within=vectors_of(query.conversation_id) if query.conversation_id else "",
        )
        worded_passages = [
            vector_id(one.conversation_id, one.id, number)
            for one in worded
            for number in range(len(passages(one.text)))
        ]
        found |= await self._vectors.similarities(
            scope, PLANE, vector, [name for name in worded_passages if name not in found]
        )
        near: dict[tuple[str, str], float] = {}
        for name, cosine in found.items():
            place = turn_of_vector(name)
            near[place] = max(cosine, near.get(place, -1.0))
        return near

    async def _hits(
        self, scope: Scope, kept: Sequence[tuple[Turn, float | None, float]], noise_floor: float, top_k: int
    ) -> tuple[TurnHit, ...]:
        scored = sorted(
            ((shown_score(cosine, share, noise_floor=noise_floor), turn, cosine) for turn, cosine, share in kept),
            key=lambda each: (-round(each[0], 6), -each[1].at.timestamp(), each[1].conversation_id, each[1].id),
        )[:top_k]
        titles = await self._rows.by_ids(scope, {turn.conversation_id for _, turn, _ in scored}) if scored else {}
        return tuple(
            TurnHit(
                turn.conversation_id, titles[turn.conversation_id].title, turn.id, turn.index, turn.author, turn.role,
                turn.text, turn.at, shown, cosine,
            )
            for shown, turn, cosine in scored
            # Of one that was deleted meanwhile nothing is shown.
            if turn.conversation_id in titles and titles[turn.conversation_id].life == turn.life
        )  # fmt: skip

    async def _why_nothing(self, scope: Scope, users: Collection[str] | None, *, is_below: bool) -> str:
        if is_below:
            return BELOW_FLOOR
        return EMPTY_NAMESPACE if await self._rows.is_empty(scope, users) else NO_MATCH
