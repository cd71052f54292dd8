"""The order of passages, and their shown score.

As for memories: order and score are two things, both on the absolute scale of their evidence.

    order = (cosine + share) / 2, plus 1 where a whole identifier of the query stands in the passage
    score = the function of `loom_memory.domain.scoring`, the same in every mode

A passage that is noise stands behind every other that answers the query, and before those that hardly do.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from loom_memory.domain.scoring import MATCH, score
from loom_memory.knowledge.domain.chunks import ChunkPlace

MIN_SHOWN: Final = 0.1
"""Score under which a doubtful hit is not shown. Source: as for memories."""

_EXACT: Final = 1.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage that some leg found.

    Attributes:
        place: Which passage; orders ties.
        section: Ordinal of its section.
        cosine: Best cosine of its vectors; None where it is not known.
        bm25: From the leg of words; 0 where that did not find it. Breaks ties.
        share: From the leg of words, 0 to 1.
        exact: Whether it holds a whole identifier of the query.
    """

    place: ChunkPlace
    section: int
    cosine: float | None = None
    bm25: float = 0.0
    share: float = 0.0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Ranked:
    """A passage in its place.

    Attributes:
        candidate: The passage.
        order: The fused value, noise apart.
        score: The shown score, 0 to 1.
        is_low: Whether it hardly answers the query.
        is_noise: Whether it stands below the others as noise.
        rerank_score: What a reranker gave it; None where none read it.
    """

    candidate: Candidate
    order: float
    score: float
    is_low: bool
    is_noise: bool
    rerank_score: float | None = None

    @property
    def tier(self) -> int:
        """0 for what answers, 1 for noise that does, 2 for what hardly does, 3 for noise that hardly does."""
        return 2 * self.is_low + self.is_noise


def rank(candidates: Sequence[Candidate], noise: Collection[ChunkPlace], *, noise_floor: float) -> list[Ranked]:
    """Orders passages, best first; ties go to the higher BM25, then to the earlier place.

    Args:
        candidates: What the legs found, each once.
        noise: Those that are noise to the query.
        noise_floor: Cosine under which the embedder's pairs are unrelated.
    """
    # A passage outside the pool of vectors is no closer than the pool's last.
    unknown = min((each.cosine for each in candidates if each.cosine is not None), default=0.0)
    ranked = []
    for each in candidates:
        cosine = unknown if each.cosine is None else each.cosine
        order = (cosine + each.share) / 2 + (_EXACT if each.exact else 0.0)
        shown = score(each.cosine, each.share, noise_floor=noise_floor)
        is_low = shown < MATCH and not each.exact
        ranked.append(Ranked(each, order, shown, is_low, each.place in noise))
    return sorted(ranked, key=lambda hit: (hit.tier, -round(hit.order, 6), -hit.candidate.bm25, hit.candidate.place))


def reranked(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Orders passages by their reranker's scores; noise stays below what answers."""
    return sorted(
        ranked, key=lambda hit: (hit.is_noise and not hit.is_low, -(hit.rerank_score or 0.0), hit.candidate.place)
    )
