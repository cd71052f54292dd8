"""Who and what texts name, and which names are one."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_memory.domain.entities import Entity, Mention, Merging, fold, mentions_from_json, named_in

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Ann Smith lives in Rome with her husband Bob.", ["Ann Smith", "Rome", "Bob"]),
        ("She left Rome. Bob stayed, and Bob likes it.", ["Rome", "Bob"]),
        ("Yesterday the team met.", []),
        ("The weather is nice. It rains.", []),
        ("We use app/main.py and MemoryWriter with max_tokens", ["app/main.py", "MemoryWriter", "max_tokens"]),
        ("ask @alice about O'Brien & Sons", ["@alice", "O'Brien & Sons"]),
        ("Ann's cat", ["Ann"]),
        ("", []),
    ],
)
def test_names_are_found_by_their_form(text: str, names: list[str]) -> None:
    assert sorted(mention.name for mention in named_in(text)) == sorted(names)


@pytest.mark.parametrize(
    ("text", "name", "alias"),
    [
        ("We met Robert Smith, also known as Bob Jones.", "Robert Smith", "Bob Jones"),
        ("He works at Acme Corp (AC).", "Acme Corp", "AC"),
    ],
)
def test_other_names_that_a_text_gives_are_no_entities_of_their_own(text: str, name: str, alias: str) -> None:
    assert Mention(name, "thing", (alias,)) in named_in(text)
    assert alias not in [mention.name for mention in named_in(text)]


@pytest.mark.parametrize(
    "text",
    [
        "a.a" * 3_000,
        "A " * 4_000,
        "Aa" * 4_000,
        "a_" * 4_000,
        "a/" * 4_000,
        "aB1" * 22_000,
        "Ann Smith of " * 800,
        "A also known as " * 500,
        "A (" * 3_000,
        "\ud800" * 100,
    ],
)
def test_a_hostile_text_is_read_to_its_end(text: str) -> None:
    assert len(named_in(text)) <= 32


def test_a_models_list_is_taken_as_far_as_it_makes_sense() -> None:
    held = [
        {"memory": 1, "name": " Ann  Smith ", "kind": "person", "aliases": ["Annie", 5, ""]},
        {"memory": 2, "name": "Rome", "kind": "wonder"},
        {"memory": 3, "name": "Nobody"},
        {"memory": True, "name": "Nobody"},
        {"memory": 1, "name": ""},
        "Rome",
    ]
    assert mentions_from_json(held, 2) == {
        0: [Mention("Ann Smith", "person", ("Annie",))],
        1: [Mention("Rome", "thing", ())],
    }
    assert mentions_from_json("none", 2) == {}


def test_entities_that_share_a_name_are_one_and_the_older_stays() -> None:
    old = Entity("e-old", "Robert Smith", "person", (), NOW, NOW)
    new = Entity("e-new", "Bob Jones", "thing", ("BJ",), NOW + timedelta(days=1), NOW + timedelta(days=1))
    merging = Merging([new, old], NOW)
    assert merging.entity_of(Mention("robert smith", "thing", ("Bob Jones",)), NOW) == "e-old"
    assert merging.merged == {"e-new": "e-old"}
    kept, gone = merging.entities()["e-old"], merging.entities()["e-new"]
    assert (kept.aliases, kept.kind, gone.tombstoned_at) == (("Bob Jones", "BJ"), "person", NOW)
    assert merging.entity_of(Mention("BJ"), NOW) == "e-old"


def test_a_name_is_compared_by_its_letters() -> None:
    assert fold("ＡＮＮ  Smith’s") == fold("Ann Smith")


_MENTIONS = st.lists(st.lists(st.sampled_from("ABCDEFGH"), min_size=1, max_size=3, unique=True), max_size=8)


@given(_MENTIONS, st.randoms(use_true_random=False), st.integers(0, 8))
def test_which_names_are_one_depends_on_no_order_and_on_no_grouping(
    mentions: list[list[str]], order: random.Random, cut: int
) -> None:
    def groups(*batches: list[list[str]]) -> set[frozenset[str]]:
        known: list[Entity] = []
        for batch in batches:
            merging = Merging(known, NOW)
            for name, *aliases in batch:
                merging.entity_of(Mention(f"Name {name}", aliases=tuple(f"Name {one}" for one in aliases)), NOW)
            known = [entity for entity in merging.entities().values() if entity.tombstoned_at is None]
        return {frozenset(entity.folded) for entity in known}

    shuffled = order.sample(mentions, len(mentions))
    once = groups(mentions)
    assert groups(shuffled) == groups(mentions[:cut], mentions[cut:]) == groups(mentions, mentions) == once
    assert sum(len(group) for group in once) == len({name for names in mentions for name in names})
