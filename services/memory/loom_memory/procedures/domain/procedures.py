"""Procedures and learnings: what to do, or to know, in a situation."""

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from loom_memory.domain.analyzer import QueryTerm, analyze_text

PLANE: Final = "procedure"
"""Name of the plane among vectors."""

MIN_SIMILARITY: Final = 0.38
"""Cosine from which two situations are alike, never below the model's noise. Source: chosen, as for profiles."""

# Source: chosen. Situations are told in a sentence or two; half of the words of one are the situation itself.
_SHARE: Final = 0.5
# How much of the order experience may change: less than what tells two situations apart. Source: chosen.
_EXPERIENCE: Final = 0.05
_ID_BYTES: Final = 15


class Kind(StrEnum):
    """What it is."""

    PROCEDURE = "procedure"
    """What to do."""
    LEARNING = "learning"
    """What to know."""


@dataclass(frozen=True, slots=True)
class Procedure:
    """One procedure or learning as it is now.

    Attributes:
        version: 1, 2, 3 and so on.
        uses: How often its outcome was recorded.
        successes: How often it did what it is for.
        row_version: Number of the row that it was read from; 0 for none.
    """

    id: str
    kind: Kind
    situation: str
    body: str
    user_id: str
    agent: str
    version: int
    actor: str
    created_at: datetime
    updated_at: datetime
    uses: int = 0
    successes: int = 0
    is_removed: bool = False
    row_version: int = 0


@dataclass(frozen=True, slots=True)
class ProcedureHit:
    """A procedure that fits.

    Attributes:
        similarity: Cosine of the two situations; None where it has no vector.
        by_words: Whether the situation's words stand in it.
    """

    procedure: Procedure
    similarity: float | None
    by_words: bool
    share: float = 0.0


def procedure_id(situation: str, user_id: str, agent: str, kind: Kind) -> str:
    """Returns the identifier of the procedure of an owner for a situation."""
    folded = " ".join(unicodedata.normalize("NFKC", situation).casefold().split())
    told = json.dumps([kind.value, user_id, agent, folded]).encode("utf-8", "surrogatepass")
    return f"p-{hashlib.blake2b(told, digest_size=_ID_BYTES).hexdigest()}"


def fits_by_words(terms: Sequence[QueryTerm], procedure: Procedure) -> tuple[bool, float]:
    """Says whether a situation's words stand in a procedure's own, and the share of them by weight."""
    held = set(analyze_text(procedure.situation).term_ids)
    total = sum(term.weight for term in terms)
    share = sum(term.weight for term in terms if term.term_id in held) / total if total else 0.0
    return share >= _SHARE or any(term.is_identifier and term.term_id in held for term in terms), share


def experience(procedure: Procedure) -> float:
    """Returns how well a procedure did, -1 to 1: 0 where nothing is known, and never sure after few uses."""
    return (2 * procedure.successes - procedure.uses) / (procedure.uses + 2)


def ranked(hits: Sequence[ProcedureHit], top_k: int) -> tuple[ProcedureHit, ...]:
    """Returns hits by how near they are; between those that are about as near, what did well comes first."""
    return tuple(sorted(hits, key=lambda hit: (-_score(hit), hit.procedure.id))[:top_k])


def _score(hit: ProcedureHit) -> float:
    return max(hit.similarity or 0.0, hit.share if hit.by_words else 0.0) + _EXPERIENCE * experience(hit.procedure)
