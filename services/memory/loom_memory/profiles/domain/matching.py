"""Which sections answer a query: by its words first, and by meaning else."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from loom_memory.domain.analyzer import QueryTerm, analyze_text
from loom_memory.profiles.domain.sections import ProfileSection

MIN_SIMILARITY: Final = 0.38
"""Cosine from which a section answers without its words. Source: the design's, tuned for one model; the effective floor
is never below the served model's noise."""

# Source: chosen. Half of a question's words that carry meaning; one word in five is no match.
_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class ProfileHit:
    """A section that answers.

    Attributes:
        similarity: Cosine of the query with label and value; None where it has no vector.
        by_words: Whether words of the query stand in it.
        share: Share of the query's words that do, by their weight.
    """

    section: ProfileSection
    similarity: float | None
    by_words: bool
    share: float = 0.0


def words_share(terms: Sequence[QueryTerm], held: Collection[int]) -> float:
    """Returns the share of a query's terms, by weight, that a text holds."""
    total = sum(term.weight for term in terms)
    return sum(term.weight for term in terms if term.term_id in held) / total if total else 0.0


def matches_by_words(terms: Sequence[QueryTerm], section: ProfileSection) -> tuple[bool, float]:
    """Says whether a section answers by words, and the share of them that it holds.

    It does where it holds half of what the query says or one of its identifiers, or where the query names its label.
    """
    held = set(analyze_text(section.text).term_ids)
    share = words_share(terms, held)
    asked = {term.term_id for term in terms}
    label = set(analyze_text(section.label).term_ids)
    named = bool(label) and label <= asked
    identified = any(term.is_identifier and term.term_id in held for term in terms)
    return named or identified or share >= _SHARE, share


def ranked(hits: Sequence[ProfileHit], top_k: int) -> tuple[ProfileHit, ...]:
    """Returns hits by words before others, each by how much they hold of the query and how near they are."""
    ordered = sorted(
        hits,
        key=lambda hit: (
            not hit.by_words,
            -hit.share if hit.by_words else 0.0,
            -(hit.similarity or 0.0),
            hit.section.id,
        ),
    )
    return tuple(ordered[:top_k])
