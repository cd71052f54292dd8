"""What a search over everything withholds of the memories that it found, and which of them goes first.

Nearness is the similarity of a hit, and not its rank: what is newer or was recalled often ranks higher without being
nearer. A hit without a vector counts with the similarity that its score would stand for by itself.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from loom_common.call import Scope
from loom_memory.domain.memory import Hit, Kept, Memory
from loom_memory.unified.domain.margins import Floor, Gauge, Margins
from loom_memory.unified.domain.quoting import is_quoted_recall


class Rule(StrEnum):
    """Why something is withheld."""

    PRECISION_FLOOR = "precision_floor"
    FOREIGN_MARGIN = "foreign_margin"
    FOREIGN_MEMORIES = "foreign_memories"
    HOME_MEMORIES = "home_memories"
    QUOTED_RECALLS = "quoted_recalls"
    TRANSCRIPTS = "transcripts"
    KNOWLEDGE_FLOOR = "knowledge_floor"
    FOREIGN_KNOWLEDGE = "foreign_knowledge"
    CONVERSATIONS = "conversations"


_TRANSCRIPT_KINDS: Final = frozenset({"chunk", "message", "turn", "transcript"})
# A little more than floats lose, so that a hit exactly at a margin is within it.
_SLACK: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Sifted:
    """Hits that are left, and what each rule took."""

    hits: Sequence[Hit]
    withheld: Mapping[Rule, Sequence[Hit]] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[Rule]:
        """How many each rule took."""
        return Counter({rule: len(hits) for rule, hits in self.withheld.items()})


@dataclass(frozen=True, slots=True)
class Sieve:
    """The rules for one search: its home, and the floor and margins of the served embedder."""

    home: Scope
    gauge: Gauge
    floor: Floor
    margins: Margins

    def nearness(self, hit: Hit | Kept) -> float:
        """Returns how near a hit is to the query. Units: cosine."""
        if hit.similarity is not None:
            return hit.similarity
        return self.gauge.noise_floor + (1 - self.gauge.noise_floor) * hit.score

    def below(self, hit: Hit | Kept) -> Rule | None:
        """Returns the rule by which the floor withholds a hit; None where it does not.

        A derived floor is about meaning, and leaves alone what its words make an answer.
        """
        if self.floor.value is None or (self.floor.is_derived and not hit.low):
            return None
        near = self.nearness(hit) + _SLACK
        if near < self.floor.value:
            return Rule.PRECISION_FLOOR
        is_foreign = _namespace(hit) != self.home.namespace
        return Rule.FOREIGN_MARGIN if is_foreign and near < self.floor.value + self.margins.foreign else None

    def lead_fact(self, hits: Sequence[Hit]) -> Hit | None:
        """Returns the home's fact that goes first: the lead itself, or the nearest of those as near as the lead."""
        if not hits:
            return None
        if self._is_home_fact(hits[0]):
            return hits[0]
        least = self.nearness(hits[0]) - self.margins.lead - _SLACK
        near = [hit for hit in hits if self._is_home_fact(hit) and self.nearness(hit) >= least]
        return max(near, key=self.nearness, default=None)

    def behind_fact(self, hits: Sequence[Hit], fact: Hit) -> Sifted:
        """Returns hits with a fact of the home first, without what is no answer beside it.

        At most one piece of a transcript stays, as evidence.
        """
        at = self.nearness(fact)
        kept, taken = [fact], dict[Rule, list[Hit]]()
        has_transcript = False
        for hit in hits:
            if hit is fact:
                continue
            rule = self._beside(hit, at)
            if rule is None and is_transcript(hit.memory):
                rule = Rule.TRANSCRIPTS if has_transcript else None
                has_transcript = True
            if rule is None:
                kept.append(hit)
            else:
                taken.setdefault(rule, []).append(hit)
        return Sifted(kept, taken)

    def _beside(self, hit: Hit, fact_at: float) -> Rule | None:
        if is_quoted_recall(hit.memory.content.value):
            return Rule.QUOTED_RECALLS
        below = fact_at - self.nearness(hit) - _SLACK
        if hit.memory.scope != self.home:
            return Rule.FOREIGN_MEMORIES if below > self.margins.lead else None
        return Rule.HOME_MEMORIES if below > self.margins.home else None

    def _is_home_fact(self, hit: Hit) -> bool:
        """Says whether a hit states something in the home by itself, and is an answer."""
        memory = hit.memory
        if memory.scope != self.home or hit.low or is_transcript(memory):
            return False
        return not is_quoted_recall(memory.content.value)


def above_floor(sieve: Sieve, hits: Iterable[Hit]) -> Sifted:
    """Returns hits without those that the floor withholds."""
    kept: list[Hit] = []
    taken: dict[Rule, list[Hit]] = {}
    for hit in hits:
        rule = sieve.below(hit)
        if rule is None:
            kept.append(hit)
        else:
            taken.setdefault(rule, []).append(hit)
    return Sifted(kept, taken)


def without_quotes(hits: Iterable[Hit]) -> Sifted:
    """Returns hits without Loom's own answers, stored again."""
    kept: list[Hit] = []
    quoted: list[Hit] = []
    for hit in hits:
        (quoted if is_quoted_recall(hit.memory.content.value) else kept).append(hit)
    return Sifted(kept, {Rule.QUOTED_RECALLS: quoted} if quoted else {})


def with_decisions(sieve: Sieve, hits: Sequence[Hit], decisions: Sequence[Hit]) -> list[Hit]:
    """Returns hits with a repository's decisions among those of the home: each before the first one less near."""
    merged = list(hits)
    for decision in decisions:
        near = sieve.nearness(decision)
        places = (
            place for place, hit in enumerate(merged) if hit.memory.scope == sieve.home and sieve.nearness(hit) < near
        )
        merged.insert(next(places, len(merged)), decision)
    return merged


def is_transcript(memory: Memory) -> bool:
    """Says whether a memory is a piece of a transcript: what somebody said in a session, and no fact by itself."""
    content = memory.content
    return content.kind in _TRANSCRIPT_KINDS or bool(content.speaker and memory.identity.session_id)


def _namespace(hit: Hit | Kept) -> str:
    return hit.namespace if isinstance(hit, Kept) else hit.memory.scope.namespace
