"""What each plane brought as it is shown."""

from collections import Counter
from collections.abc import Sequence

from loom_common.call import Scope
from loom_memory.app.search.answering import ShownHit
from loom_memory.domain.excerpts import Bodies, shown_text, shown_value
from loom_memory.domain.memory import Hit
from loom_memory.knowledge.app.search import KnowledgeHit, KnowledgeResult
from loom_memory.unified.app.found import Asked, ConversationsSide, KnowledgeSide, ShownPassage, ShownTurn, TrackerSide
from loom_memory.unified.app.legs import Outcome
from loom_memory.unified.app.ports import TurnsFound, Verdict
from loom_memory.unified.app.reading import passages_text, turns_text, verdict_text
from loom_memory.unified.domain.composing import Composed
from loom_memory.unified.domain.withholding import Rule, Sieve


def knowledge_side(
    asked: Asked,
    sieve: Sieve,
    least: float,
    outcome: Outcome[KnowledgeResult],
    of_repository: Sequence[KnowledgeHit],
    *,
    is_strict: bool,
) -> tuple[KnowledgeSide, Counter[Rule]]:
    """Returns what documents answer, as it is shown, and what the rules took of it.

    Args:
        asked: What was asked.
        sieve: The rules.
        least: Similarity of a passage from which it answers.
        outcome: What the leg brought.
        of_repository: What the documents of the checkout's repository answer.
        is_strict: Whether a fact of the home goes first, beside which no other namespace's document answers.
    """
    found = outcome.found or KnowledgeResult()
    explain, taken = asked.query.explain, Counter[Rule]()
    hits = []
    # The checkout's own documents were asked for by the connection: they join as the home's do.
    trunk = {id(hit) for hit in of_repository}
    for hit in [*found.hits, *of_repository]:
        if not explain and not _is_near(hit, least):
            taken[Rule.KNOWLEDGE_FLOOR] += 1
        elif is_strict and hit.document.scope != sieve.home and id(hit) not in trunk:
            taken[Rule.FOREIGN_KNOWLEDGE] += 1
        else:
            hits.append(hit)
    if of_repository:
        hits.sort(key=lambda hit: (hit.ranked.tier, -hit.ranked.score))
    look, query = asked.look, asked.query
    shown = [ShownPassage(hit, *shown_text(hit.chunk.text, look.bodies, query.text)) for hit in hits[: query.top_k]]
    code = "" if shown or outcome.error else found.abstained or "below_floor"
    side = KnowledgeSide(shown, code, found.pending, passages_text(shown, sieve.home), outcome.error)
    return side, taken


def shown_hit(hit: Hit, asked: Asked, chosen: Composed, *, is_decision: bool) -> ShownHit:
    """Returns a hit as it is shown: a decision of a repository whole, and one under the floor as the mode says."""
    bodies = asked.look.bodies
    if any(hit is each for each in chosen.bare):
        bodies = Bodies.NONE
    elif is_decision and bodies is not Bodies.NONE:
        bodies = Bodies.FULL
    return ShownHit(hit, *shown_value(hit.memory.content, bodies, asked.query.text))


def _is_near(hit: KnowledgeHit, least: float) -> bool:
    """Says whether a passage answers: by its similarity, or by holding a whole identifier of the query.

    One whose vector is still to come answers by its words alone.
    """
    candidate = hit.ranked.candidate
    if candidate.exact:
        return True
    return not hit.ranked.is_low if candidate.cosine is None else candidate.cosine >= least


def conversations_side(asked: Asked, home: Scope, outcome: Outcome[TurnsFound]) -> ConversationsSide:
    """Returns what conversations answer, as it is shown."""
    look, query = asked.look, asked.query
    found = outcome.found or TurnsFound()
    shown = [ShownTurn(match, *shown_text(match.text, look.bodies, query.text)) for match in found.matches]
    return ConversationsSide(shown, found.abstain_code, found.pending, turns_text(shown, home), outcome.error)


def tracker_side(outcome: Outcome[Verdict | None] | None) -> TrackerSide | None:
    """Returns what the tracker said; None where it was not asked, or nothing is indexed."""
    if outcome is None or (outcome.found is None and not outcome.error):
        return None
    return TrackerSide(outcome.found, verdict_text(outcome.found) if outcome.found else "", outcome.error)
