"""What a search tells beside its hits: counts over the matches, and how it went about it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from loom_memory.domain.narrowing import Span

MAX_FACET_VALUES: Final = 50
"""Most values that one facet lists. Source: chosen; more are no overview."""


@dataclass(frozen=True, slots=True)
class Facet:
    """How many matches share one value: their `kind`, a `tag`, their `agent` or the `month` (`2026-11`) of each."""

    name: str
    value: str
    count: int


class Traits(NamedTuple):
    """What a match is counted by."""

    kind: str
    tags: tuple[str, ...]
    agent: str
    month: str


@dataclass(frozen=True, slots=True)
class HelperNote:
    """What became of one helper: `used`, or why it was not, such as `failed: PROVIDER_FAILED`."""

    name: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a search went about its question.

    Attributes:
        recipe: The recipe that it followed.
        intent: What kind of answer the question asks for.
        legs: How many memories each leg found.
        times: Stretches of time that the question names.
        wordings: Other wordings that were searched too.
        helpers: What became of each helper that was thought of.
        thresholds: Where the thresholds come from: `namespace`, `cluster` or `settings`; empty where no meaning counts.
        noise_floor: Cosine at or under which two texts count as unrelated.
        unsearched: Memories as they were at `as_of` that were too many to be compared by meaning.
    """

    recipe: str = ""
    intent: str = ""
    legs: Mapping[str, int] = field(default_factory=dict)
    times: tuple[Span, ...] = ()
    wordings: tuple[str, ...] = ()
    helpers: tuple[HelperNote, ...] = ()
    thresholds: str = ""
    noise_floor: float = 0.0
    unsearched: int = 0


def facets_of(traits: Iterable[Traits]) -> tuple[Facet, ...]:
    """Counts matches by kind, tag, agent and month; each facet most first, of equal counts by value."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ("kind", "tag", "agent", "month")}
    for trait in traits:
        counts["kind"][trait.kind] += 1
        counts["tag"].update(set(trait.tags))
        if trait.agent:
            counts["agent"][trait.agent] += 1
        counts["month"][trait.month] += 1
    return tuple(
        Facet(name, value, count)
        for name, counter in counts.items()
        for value, count in sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:MAX_FACET_VALUES]
    )


def added_facets(parts: Iterable[tuple[Facet, ...]]) -> tuple[Facet, ...]:
    """Adds the counts of several namespaces."""
    sums: Counter[tuple[str, str]] = Counter()
    for part in parts:
        for facet in part:
            sums[facet.name, facet.value] += facet.count
    order = {name: place for place, name in enumerate(("kind", "tag", "agent", "month"))}
    ranked = sorted(sums.items(), key=lambda item: (order[item[0][0]], -item[1], item[0][1]))
    return tuple(Facet(name, value, count) for (name, value), count in ranked)
