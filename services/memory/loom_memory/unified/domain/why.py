"""Says in words why a hit is where it is."""

from loom_memory.domain.memory import Hit
from loom_memory.unified.domain.withholding import Rule, Sieve

_TAKEN = {
    Rule.PRECISION_FLOOR: "it lies under the floor",
    Rule.FOREIGN_MARGIN: "another namespace's memory needs more than the floor",
    Rule.FOREIGN_MEMORIES: "another namespace's memory is less near than the home's fact",
    Rule.HOME_MEMORIES: "it is much less near than the home's fact",
    Rule.QUOTED_RECALLS: "it quotes an answer of Loom",
    Rule.TRANSCRIPTS: "one piece of a transcript is evidence enough",
}


def why(hit: Hit, sieve: Sieve, *, is_fact: bool, is_decision: bool, taken_by: Rule | None) -> str:
    """Returns it, such as `why: home fact, similarity 0.66, score 0.71, goes first`."""
    if is_decision:
        place = "decision of the repository"
    elif hit.memory.scope == sieve.home:
        place = "home"
    else:
        place = "another namespace"
    near = f"similarity {hit.similarity:.2f}" if hit.similarity is not None else "no vector"
    words = [place, near, f"score {hit.score:.2f}"]
    if share := hit.components.get("lexical"):
        words.append(f"words {share:.2f}")
    if hit.low:
        words.append("low: it may be no answer")
    if is_fact:
        words.append("the home's fact goes first")
    if taken_by is not None:
        words.append(f"kept only for explain: {_TAKEN.get(taken_by, taken_by.value)}")
    return f"why: {', '.join(words)}"
