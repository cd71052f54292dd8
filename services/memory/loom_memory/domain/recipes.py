"""Ready-made ways to search: which legs and signals count how much, how far a search looks, what a model may add."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from loom_memory.domain.ranking import POOL_SIZE


class Recipe(StrEnum):
    """A ready-made way to search."""

    FAST = "fast"
    BALANCED = "balanced"
    QUALITY = "quality"
    VERBATIM = "verbatim"
    CODE = "code"
    TEMPORAL = "temporal"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each leg and signal counts; 1 is what was measured, 0 turns one off.

    Attributes:
        vector: What a text means.
        lexical: The words that it shares with the query.
        entity: Names of people and things that both are about.
        time: The times that a question names.
        exact: The key, a whole identifier or a tag of the memory.
        recency: How new it is, by its kind.
        reinforcement: What was said again, recalled, or marked as useful.
        importance: The weight that its writer gave.
        pin: Whether it is pinned.
        session: What stands around it in its session.
    """

    vector: float = 1.0
    lexical: float = 1.0
    entity: float = 1.0
    time: float = 1.0
    exact: float = 1.0
    recency: float = 1.0
    reinforcement: float = 1.0
    importance: float = 1.0
    pin: float = 1.0
    session: float = 1.0

    def changed(self, **given: float | None) -> "Weights":
        """Returns them with those that a request gives in their place."""
        return replace(self, **{name: weight for name, weight in given.items() if weight is not None})


@dataclass(frozen=True, slots=True)
class Helpers:
    """What may be done beside the legs for a question that they answer badly.

    Attributes:
        hyde: A model writes what an answer would look like, and that is searched too.
        rewrite: A model puts the question in other words.
        judge: A model says whether the hits answer, and what else to search for.
        triples: A model names the things and relations that the question is about.
        synonyms: A model says whether a question counts things, and with which verbs they may be told.
        spelling: Words that no memory holds are read as the nearest that one does. No model of language.
        expansion: What resembles the best hits is looked for where a question asks for many. No model of language.
    """

    hyde: bool = False
    rewrite: bool = False
    judge: bool = False
    triples: bool = False
    synonyms: bool = False
    spelling: bool = False
    expansion: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a recipe means.

    Attributes:
        weights: Of legs and signals.
        helpers: What may be added where the request lets models take part.
        pool: Rows to take from each leg.
        neighbours: Whether the rows around the best in their sessions are read.
        entities: Whether the entity leg is asked.
        superseded: Whether memories are shown whose validity has ended or not begun.
    """

    weights: Weights = Weights()
    helpers: Helpers = Helpers()
    pool: int = POOL_SIZE
    neighbours: bool = True
    entities: bool = True
    superseded: bool = False


_NO_SIGNALS: Final = {"recency": 0.0, "reinforcement": 0.0, "importance": 0.0, "pin": 0.0}

# Source: chosen. `balanced` is what the benches measure; each other turns off what its name does not need, or doubles
# what it names. A pool of 40 costs `fast` a third less rows to look at; 120 is where recall stops growing.
PLANS: Final[dict[Recipe, Plan]] = {
    Recipe.FAST: Plan(pool=40, neighbours=False, entities=False),
    Recipe.BALANCED: Plan(helpers=Helpers(spelling=True)),
    Recipe.QUALITY: Plan(
        pool=120,
        helpers=Helpers(hyde=True, rewrite=True, judge=True, synonyms=True, spelling=True, expansion=True),
    ),
    Recipe.VERBATIM: Plan(
        weights=Weights(vector=0.5, lexical=2.0).changed(**_NO_SIGNALS), neighbours=False, superseded=True
    ),
    Recipe.CODE: Plan(weights=Weights(lexical=1.5, exact=2.0, recency=0.5, session=0.5), neighbours=False),
    Recipe.TEMPORAL: Plan(weights=Weights(time=3.0, recency=2.0), superseded=True),
    Recipe.GRAPH: Plan(weights=Weights(entity=3.0), helpers=Helpers(triples=True, spelling=True), pool=120),
}
