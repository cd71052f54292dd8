"""The rules of a search that need no store: signals, intents, names, spelling, units, facets, changes of rank."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_memory.domain.findings import Facet, Traits, added_facets, facets_of
from loom_memory.domain.intents import Intent, intent_of
from loom_memory.domain.memory import Identity
from loom_memory.domain.names import MAX_NAMES, named_exactly
from loom_memory.domain.narrowing import EVERYTHING, Narrowing, Span
from loom_memory.domain.rank_changes import ENTERED, LEFT, MOVED, SAME, Sums, difference
from loom_memory.domain.recipes import PLANS, Recipe, Weights
from loom_memory.domain.respelling import respelled
from loom_memory.domain.signals import IMPORTANCE, KEY, PIN, RECENCY, REINFORCEMENT, SUPERSEDED, Facts, Use, signals
from loom_memory.domain.units import MAX_CHARS, unit_of

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def facts(**given: object) -> Facts:
    made: dict[str, object] = {
        "kind": "decision", "at": NOW, "importance": 0.5, "pinned": False, "invalid_at": None, "said": False, **given,
    }  # fmt: skip
    return Facts(**made)  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"kind": "note"}, {"recency": RECENCY}),
        ({"kind": "task", "at": NOW - timedelta(days=14)}, {"recency": RECENCY / 2}),
        ({"kind": "note", "at": NOW + timedelta(days=9)}, {"recency": RECENCY}),
        ({"kind": "note", "said": True}, {}),
        ({"importance": 1.0}, {"importance": IMPORTANCE / 2}),
        ({"importance": 0.0}, {"importance": -IMPORTANCE / 2}),
        ({"pinned": True}, {"pin": PIN}),
        ({"invalid_at": NOW}, {"validity": -SUPERSEDED}),
        ({"invalid_at": NOW + timedelta(seconds=1)}, {}),
        ({"has_key": True}, {"key": KEY}),
        ({"use": Use(reinforced=4)}, {"reinforcement": REINFORCEMENT / 2}),
    ],
)
def test_each_signal_adds_what_it_says(given: dict[str, object], expected: dict[str, float]) -> None:
    assert signals(facts(**given), Weights(), NOW) == pytest.approx(expected)


def test_a_weight_of_nought_turns_a_signal_off() -> None:
    weights = Weights(recency=0, importance=0, pin=0, reinforcement=0, exact=0)
    told = facts(kind="note", importance=1.0, pinned=True, use=Use(9, 9, 9), has_key=True)
    assert signals(told, weights, NOW) == {}


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(-(10**3), 10**3))
def test_use_never_moves_a_hit_further_than_its_bound(reinforced: int, recalled: int, helpful: int) -> None:
    found = signals(facts(use=Use(reinforced, recalled, helpful)), Weights(), NOW).get("reinforcement", 0.0)
    assert abs(found) <= REINFORCEMENT


def test_being_marked_as_wrong_lowers_and_as_useful_lifts() -> None:
    lifted = signals(facts(use=Use(helpful=1)), Weights(), NOW)["reinforcement"]
    lowered = signals(facts(use=Use(helpful=-1)), Weights(), NOW)["reinforcement"]
    assert lowered < 0 < lifted


@pytest.mark.parametrize(
    ("query", "intent"),
    [
        ("How many trips did I take?", Intent.COUNT),
        ("wie oft war ich dort", Intent.COUNT),
        ("一共去了几次", Intent.COUNT),
        ("How long ago did I move?", Intent.DERIVED),
        ("how many years have we known each other", Intent.DERIVED),
        ("what is my current employer", Intent.LATEST),
        ("list all hobbies", Intent.LIST),
        ("Where does Ana live?", Intent.LOOKUP),
        ("", Intent.LOOKUP),
    ],
)
def test_what_a_question_asks_for_is_read_from_its_words(query: str, intent: Intent) -> None:
    assert intent_of(query) is intent


@pytest.mark.parametrize(
    ("query", "keys", "tags"),
    [
        ("deploy/window", ("deploy/window",), ()),
        ("what is in deploy/window?", ("deploy/window",), ()),
        ("what does `team rules` say", ("team rules",), ()),
        ("coffee", ("coffee",), ()),
        ("where does Ana live", (), ()),
        ("notes about #release and tag:infra", ("#release", "tag:infra"), ("release", "infra")),
        ("   ", (), ()),
    ],
)
def test_keys_and_tags_are_read_as_they_are_written(query: str, keys: tuple[str, ...], tags: tuple[str, ...]) -> None:
    named = named_exactly(query)
    assert (named.keys, named.tags) == (keys, tags)


@given(st.text(max_size=2_000))
def test_no_query_names_more_than_may_be_looked_up(query: str) -> None:
    named = named_exactly(query)
    assert len(named.keys) <= MAX_NAMES
    assert len(named.tags) <= MAX_NAMES
    assert all(0 < len(key) <= 512 for key in named.keys)


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("where is the restaraunt", "The restaurant is in Lyon", "where is the restaurant"),
        ("the restaurants of Lyon", "The restaurant is in Lyon", "the restaurants of Lyon"),
        ("v1 or v2", "v3 is out", "v1 or v2"),
        ("violin", "The restaurant", "violin"),
        ("", "x", ""),
    ],
)
def test_a_slip_is_read_as_the_nearest_word_that_is_stored(query: str, text: str, expected: str) -> None:
    assert respelled(query, [text]) == expected


def test_a_unit_is_the_paragraph_that_answers() -> None:
    text = "\n\n".join(
        [f"Paragraph {number} is about gardens. " * 20 for number in range(3)] + ["The key is under the mat."]
    )
    assert unit_of(text, "where is the key") == ("The key is under the mat.", True)
    assert unit_of("short", "x") == ("short", False)


@given(st.text(max_size=4_000), st.text(max_size=40))
def test_a_unit_is_never_too_long(value: str, query: str) -> None:
    text, is_cut = unit_of(value, query)
    assert len(text) <= MAX_CHARS
    assert is_cut == (len(value) > MAX_CHARS)


def test_facets_count_each_match_once_for_each_of_its_values() -> None:
    found = facets_of([Traits("fact", ("a", "b"), "bot", "2026-11"), Traits("fact", ("a",), "", "2026-10")])
    assert found[:3] == (Facet("kind", "fact", 2), Facet("tag", "a", 2), Facet("tag", "b", 1))
    assert Facet("agent", "bot", 1) in found
    added = added_facets([found, found])
    assert added[0] == Facet("kind", "fact", 4)


def test_a_narrowing_that_keeps_all_is_none() -> None:
    assert not EVERYTHING
    assert not Narrowing()
    assert Narrowing(pinned=False)
    assert Narrowing(happened=Span(since=NOW))


def test_every_recipe_has_a_plan_and_only_named_ones_ask_models() -> None:
    assert set(PLANS) == set(Recipe)
    asking = {
        recipe
        for recipe, plan in PLANS.items()
        if plan.helpers.hyde or plan.helpers.rewrite or plan.helpers.judge or plan.helpers.triples
        or plan.helpers.synonyms
    }  # fmt: skip
    assert asking == {Recipe.QUALITY, Recipe.GRAPH}


def test_a_difference_names_what_moved_entered_and_left() -> None:
    one, two, three = Identity("one"), Identity("two"), Identity("three")
    found = difference([one, two], [one, three])
    assert [(change.identity.key, change.kind) for change in found.changes] == [
        ("one", SAME), ("three", ENTERED), ("two", LEFT),
    ]  # fmt: skip
    assert found.overlap == 0.5
    assert not found.first_changed
    assert difference([one, two], [two, one]).changes[0].kind == MOVED
    sums = Sums()
    for each in (found, difference([], [one]), difference([one], []), difference([], [])):
        sums.add(each)
    assert (sums.compared, sums.same, sums.answered, sums.abstained) == (4, 1, 1, 1)
    assert sums.mean_overlap == pytest.approx((0.5 + 0 + 0 + 1) / 4)
