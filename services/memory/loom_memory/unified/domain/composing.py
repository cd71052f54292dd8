"""Makes one answer of what namespaces and planes found: what is shown, in which order, and what each rule took."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from loom_memory.domain.memory import Hit, Kept, kept_of
from loom_memory.unified.domain.withholding import (
    Rule,
    Sieve,
    Sifted,
    above_floor,
    with_decisions,
    without_quotes,
)


class FloorMode(StrEnum):
    """What becomes of memories under the floor."""

    DROP = "drop"
    READMIT = "readmit"
    IDS_ONLY = "ids_only"


@dataclass(frozen=True, slots=True)
class Composing:
    """How memories are put together.

    Attributes:
        top_k: Most hits, the decisions of a repository beside.
        mode: What becomes of hits under the floor.
        keeps_all: Whether nothing is withheld, and the rules only say what they would take.
        has_verdict: Whether a tracker's verdict leads.
    """

    top_k: int
    mode: FloorMode = FloorMode.DROP
    keeps_all: bool = False
    has_verdict: bool = False


@dataclass(frozen=True, slots=True)
class Composed:
    """Memories as they are shown.

    Attributes:
        hits: In their order, the decisions of a repository among them.
        decisions: Those of `hits` that are a repository's decisions.
        bare: Those of `hits` that are named and not told.
        fact: The home's fact that goes first; None where none does.
        withheld: How many each rule took.
        would_take: By which rule each of `hits` would be withheld, by its place, where nothing is.
        behind: The home's matches behind those that were taken for this answer, in their order: the pages that follow.
        before: How many of the home's matches come before those.
    """

    hits: Sequence[Hit]
    decisions: Sequence[Hit] = ()
    bare: Sequence[Hit] = ()
    fact: Hit | None = None
    withheld: Counter[Rule] = field(default_factory=Counter)
    would_take: Mapping[int, Rule] = field(default_factory=dict)
    behind: Sequence[Kept] = ()
    before: int = 0


def composed(sieve: Sieve, found: Sequence[Hit | Kept], decisions: Sequence[Hit], how: Composing) -> Composed:
    """Returns what is shown of what memories found.

    Args:
        sieve: The rules.
        found: Hits and what is kept behind them, of all namespaces in one order.
        decisions: What a repository's decisions answer.
        how: How they are put together.
    """
    hits = [each for each in found if isinstance(each, Hit)]
    floored = above_floor(sieve, hits)
    candidates = hits if how.keeps_all else floored.hits
    taken = candidates[: how.top_k]
    sifted = _kept_whole(sieve, taken, floored, how) if how.keeps_all else _sifted(sieve, hits, taken, floored, how)
    # A floor holds for decisions as for the home's own hits; that they are of another namespace is what was asked for.
    near = [each for each in decisions if how.keeps_all or sieve.below(each) is not Rule.PRECISION_FLOOR]
    joining = sorted(near, key=sieve.nearness, reverse=True)[: how.top_k]
    lead = 0 if sifted.fact is None else 1
    shown = [*sifted.hits[:lead], *with_decisions(sieve, sifted.hits[lead:], joining)]
    would_take = {place: rule for place, hit in enumerate(shown) if (rule := sifted.rules.get(id(hit)))}
    return Composed(
        hits=shown,
        decisions=joining,
        bare=sifted.bare,
        fact=sifted.fact,
        withheld=sifted.withheld,
        would_take=would_take,
        behind=_behind(sieve, found, candidates[how.top_k :], how),
        before=sum(hit.memory.scope == sieve.home for hit in taken),
    )


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Hits after the rules; `rules` says which would take which, by the hit's identity in memory."""

    hits: Sequence[Hit]
    fact: Hit | None
    bare: Sequence[Hit] = ()
    withheld: Counter[Rule] = field(default_factory=Counter)
    rules: Mapping[int, Rule] = field(default_factory=dict)


def _sifted(sieve: Sieve, hits: Sequence[Hit], taken: Sequence[Hit], floored: Sifted, how: Composing) -> _Chosen:
    withheld = floored.counts
    padding: list[Hit] = []
    if how.mode is not FloorMode.DROP:
        rules = {id(hit): rule for rule, under in floored.withheld.items() for hit in under}
        below = [hit for hit in hits if id(hit) in rules][: how.top_k - len(taken)]
        withheld.subtract(rules[id(hit)] for hit in below)
        padding = [replace(hit, low=True) for hit in below]
    shown: Sequence[Hit] = [*taken, *padding]
    if how.has_verdict:
        unquoted = without_quotes(shown)
        shown, withheld = unquoted.hits, withheld + unquoted.counts
    fact = sieve.lead_fact(shown)
    if fact is not None:
        beside = sieve.behind_fact(shown, fact)
        shown, withheld = beside.hits, withheld + beside.counts
    bare = padding if how.mode is FloorMode.IDS_ONLY else ()
    return _Chosen(shown, fact, bare, +withheld)


def _kept_whole(sieve: Sieve, taken: Sequence[Hit], floored: Sifted, how: Composing) -> _Chosen:
    """Returns every hit, a fact of the home first, and by which rule each would go."""
    rules = {id(hit): rule for rule, under in floored.withheld.items() for hit in under}
    left = [hit for hit in taken if id(hit) not in rules]
    if how.has_verdict:
        rules |= {id(hit): Rule.QUOTED_RECALLS for hit in without_quotes(left).withheld.get(Rule.QUOTED_RECALLS, ())}
    fact = sieve.lead_fact(left)
    if fact is None:
        return _Chosen(taken, None, rules=rules)
    beside = sieve.behind_fact(left, fact)
    rules |= {id(hit): rule for rule, under in beside.withheld.items() for hit in under}
    return _Chosen([fact, *(hit for hit in taken if hit is not fact)], fact, rules=rules)


def _behind(sieve: Sieve, found: Sequence[Hit | Kept], rest: Sequence[Hit], how: Composing) -> list[Kept]:
    """Returns the home's matches that come on later pages: those that no page shows are not among them."""
    unread = [
        each
        for each in found
        if isinstance(each, Kept)
        and each.namespace == sieve.home.namespace
        and (how.keeps_all or sieve.below(each) is None)
    ]
    return [*(kept_of(hit) for hit in rest if hit.memory.scope == sieve.home), *unread]
