"""What a search over everything withholds, and which hit goes first."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from loom_common.call import Scope
from loom_memory.domain.memory import Content, Hit, Identity, Kept, Memory
from loom_memory.unified.domain.composing import Composed, Composing, FloorMode, composed
from loom_memory.unified.domain.defects import is_defect_shaped
from loom_memory.unified.domain.margins import (
    KNOWLEDGE_MIN,
    Floor,
    Gauge,
    Margins,
    floor_of,
    least_of,
    margins_of,
)
from loom_memory.unified.domain.quoting import is_quoted_recall
from loom_memory.unified.domain.why import why
from loom_memory.unified.domain.withholding import Rule, Sieve

HOME, OTHER, TRUNK = Scope("acme", "home"), Scope("acme", "other"), Scope("acme", "trunk")
NOW = datetime(2026, 11, 30, tzinfo=UTC)
MINILM = Gauge(noise_floor=0.265, span=0.581)
QUOTE = "loom_search 'when can we deploy?': 1 memory, 0 profile, 0 knowledge, 0 conversation hit."


def hit(
    key: str,
    similarity: float | None,
    scope: Scope = HOME,
    *,
    kind: str = "fact",
    value: str = "",
    score: float = 0.5,
    low: bool = False,
    speaker: str = "",
) -> Hit:
    identity = Identity(key, session_id="s" if speaker else "")
    memory = Memory(scope, identity, Content(value or key, kind=kind, speaker=speaker), "human:ann", 1, 1, NOW, NOW)
    return Hit(memory, score, similarity, low)


def sieve(floor: float = 0.0, *, derived: bool = False, gauge: Gauge | None = None) -> Sieve:
    gauge = gauge or Gauge()
    return Sieve(HOME, gauge, Floor(floor or None, derived), Margins())


def keys(hits: Sequence[Hit]) -> list[str]:
    return [each.memory.identity.key for each in hits]


def made(
    found: Sequence[Hit | Kept], rules: Sieve | None = None, decisions: Sequence[Hit] = (), **how: object
) -> Composed:
    plan: dict[str, object] = {"top_k": 5, **how}
    return composed(rules or sieve(), found, decisions, Composing(**plan))  # type: ignore[arg-type]  # fields by name


def withheld(answer: Composed) -> dict[str, int]:
    return {rule.value: count for rule, count in answer.withheld.items()}


# Floors and margins


def test_a_floor_below_zero_is_the_embedders_noise_floor_and_zero_is_none() -> None:
    assert floor_of(MINILM, -1.0) == Floor(0.265, is_derived=True)
    assert floor_of(MINILM, 0.0) == Floor(None)
    assert floor_of(MINILM, 0.4) == Floor(0.4)


def test_margins_grow_with_how_far_the_embedder_puts_texts_apart() -> None:
    assert margins_of(Gauge(0.3, 0.45), None) == Margins(0.08, 0.03, 0.15)
    scaled = margins_of(MINILM, None)
    assert scaled.lead == pytest.approx(0.03 * 0.581 / 0.45)
    assert scaled.home == pytest.approx(0.15 * 0.581 / 0.45)
    assert scaled.foreign == pytest.approx(0.08 * 0.581 / 0.45)


def test_margins_are_as_they_were_tuned_where_nothing_is_calibrated() -> None:
    assert margins_of(Gauge(0.2), None) == Margins(0.08, 0.03, 0.15)


def test_a_margin_that_is_set_holds_as_it_is() -> None:
    assert margins_of(MINILM, 0.2).foreign == 0.2


def test_no_plane_answers_with_what_is_noise_unless_a_setting_says_so() -> None:
    assert least_of(Gauge(0.1), None, KNOWLEDGE_MIN) == 0.30
    assert least_of(Gauge(0.42), None, KNOWLEDGE_MIN) == 0.42
    assert least_of(Gauge(0.42), 0.1, KNOWLEDGE_MIN) == 0.1


# The precision floor


def test_memories_under_the_floor_are_withheld_and_counted() -> None:
    answer = made([hit("near", 0.6, kind="chunk"), hit("far", 0.39, kind="chunk")], sieve(0.4))
    assert keys(answer.hits) == ["near"]
    assert withheld(answer) == {"precision_floor": 1}


def test_another_namespaces_memory_needs_the_margin_more() -> None:
    found = [hit("a", 0.49, OTHER), hit("b", 0.47, OTHER), hit("c", 0.3, OTHER), hit("d", 0.41, kind="chunk")]
    answer = made(found, sieve(0.4))
    assert keys(answer.hits) == ["a", "d"]
    assert withheld(answer) == {"foreign_margin": 1, "precision_floor": 1}


def test_a_hit_exactly_at_a_floor_is_kept() -> None:
    assert keys(made([hit("a", 0.4, kind="chunk"), hit("b", 0.48, OTHER)], sieve(0.4)).hits) == ["a", "b"]


def test_a_hit_without_a_vector_counts_with_the_similarity_that_its_score_stands_for() -> None:
    rules = sieve(0.4, gauge=Gauge(0.2))
    assert rules.nearness(hit("a", None, score=0.5)) == pytest.approx(0.6)
    assert keys(made([hit("a", None, score=0.5), hit("b", None, score=0.1)], rules).hits) == ["a"]


def test_a_derived_floor_leaves_alone_what_its_words_make_an_answer() -> None:
    rules = sieve(0.265, derived=True)
    found = [hit("words", 0.1, kind="chunk"), hit("noise", 0.1, low=True), hit("foreign", 0.3, OTHER, low=True)]
    answer = made(found, rules)
    assert keys(answer.hits) == ["words"]
    assert withheld(answer) == {"precision_floor": 1, "foreign_margin": 1}


def test_without_a_floor_nothing_is_withheld_by_it() -> None:
    found = [hit("a", 0.5, kind="chunk"), hit("b", -0.2, OTHER, low=True)]
    assert keys(made(found).hits) == ["a", "b"]


def test_a_floor_makes_room_for_what_stands_behind() -> None:
    found = [hit("far", 0.1, kind="chunk"), *(hit(f"k{number}", 0.5, kind="chunk") for number in range(5))]
    assert keys(made(found, sieve(0.4)).hits) == ["k0", "k1", "k2", "k3", "k4"]


# What becomes of what is under the floor

CHUNKS = [hit("near", 0.6, kind="chunk"), hit("far", 0.3, kind="chunk"), hit("foreign", 0.45, OTHER)]


def test_readmit_fills_top_k_up_with_it_marked_low() -> None:
    answer = made(CHUNKS, sieve(0.4), mode=FloorMode.READMIT)
    assert keys(answer.hits) == ["near", "far", "foreign"]
    assert [each.low for each in answer.hits] == [False, True, True]
    assert (withheld(answer), answer.bare) == ({}, ())


def test_ids_only_fills_top_k_up_with_its_keys() -> None:
    answer = made(CHUNKS, sieve(0.4), mode=FloorMode.IDS_ONLY)
    assert keys(answer.hits) == ["near", "far", "foreign"]
    assert keys(answer.bare) == ["far", "foreign"]


def test_no_more_than_top_k_is_filled_up() -> None:
    answer = made(CHUNKS, sieve(0.4), mode=FloorMode.READMIT, top_k=2)
    assert keys(answer.hits) == ["near", "far"]
    assert withheld(answer) == {"foreign_margin": 1}


# Home fact first


def test_a_fact_of_the_home_that_leads_drops_what_is_no_answer_beside_it() -> None:
    found = [
        hit("fact", 0.70),
        hit("foreign near", 0.68, OTHER),
        hit("foreign far", 0.66, OTHER),
        hit("home near", 0.56),
        hit("home far", 0.54),
    ]
    answer = made(found)
    assert keys(answer.hits) == ["fact", "foreign near", "home near"]
    assert withheld(answer) == {"foreign_memories": 1, "home_memories": 1}


def test_a_fact_within_the_margin_of_the_lead_goes_first() -> None:
    answer = made([hit("foreign", 0.72, OTHER), hit("fact", 0.70)])
    assert keys(answer.hits) == ["fact", "foreign"]
    assert answer.fact is not None


def test_the_nearest_of_several_such_facts_goes_first() -> None:
    found = [hit("foreign", 0.72, OTHER), hit("a", 0.70), hit("b", 0.71)]
    assert keys(made(found).hits) == ["b", "foreign", "a"]


def test_a_fact_beyond_the_margin_changes_nothing() -> None:
    answer = made([hit("foreign", 0.72, OTHER), hit("fact", 0.68)])
    assert keys(answer.hits) == ["foreign", "fact"]
    assert answer.fact is None


def test_similarity_counts_and_not_rank() -> None:
    # The lead ranks first for being new; the fact is nearer.
    assert keys(made([hit("foreign", 0.5, OTHER, score=0.9), hit("fact", 0.8, score=0.4)]).hits) == ["fact"]


def test_a_piece_of_a_transcript_is_no_fact() -> None:
    for lead in (hit("turn", 0.8, speaker="Ann", kind="note"), hit("chunk", 0.8, kind="chunk")):
        answer = made([lead, hit("other", 0.4, OTHER)])
        assert (answer.fact, len(answer.hits)) == (None, 2)


def test_at_most_one_piece_of_a_transcript_stays_as_evidence() -> None:
    found = [hit("fact", 0.7), *(hit(f"turn{number}", 0.69, speaker="Ann", kind="note") for number in range(3))]
    answer = made(found)
    assert keys(answer.hits) == ["fact", "turn0"]
    assert withheld(answer) == {"transcripts": 2}


def test_what_quotes_loom_is_dropped_beside_a_fact_and_leads_none() -> None:
    answer = made([hit("quote", 0.9, value=QUOTE), hit("fact", 0.88)])
    assert keys(answer.hits) == ["fact"]
    assert withheld(answer) == {"quoted_recalls": 1}
    assert made([hit("quote", 0.9, value=QUOTE), hit("fact", 0.8)]).fact is None


def test_a_fact_that_may_be_no_answer_leads_nothing() -> None:
    assert made([hit("fact", 0.3, low=True), hit("other", 0.1, OTHER)]).fact is None


def test_a_trackers_verdict_drops_what_quotes_loom() -> None:
    found = [hit("a", 0.5, OTHER), hit("quote", 0.5, OTHER, value=QUOTE)]
    assert keys(made(found).hits) == ["a", "quote"]
    answer = made(found, has_verdict=True)
    assert (keys(answer.hits), withheld(answer)) == (["a"], {"quoted_recalls": 1})


# Explaining


def test_explain_keeps_everything_and_says_what_each_rule_would_take() -> None:
    found = [hit("foreign", 0.66, OTHER), hit("fact", 0.70), hit("far", 0.2, OTHER), hit("home", 0.45)]
    answer = made(found, sieve(0.4), keeps_all=True)
    assert keys(answer.hits) == ["fact", "foreign", "far", "home"]
    assert withheld(answer) == {}
    taken = {keys([answer.hits[place]])[0]: rule for place, rule in answer.would_take.items()}
    assert taken == {
        "foreign": Rule.FOREIGN_MEMORIES,
        "far": Rule.PRECISION_FLOOR,
        "home": Rule.HOME_MEMORIES,
    }


def test_a_hit_says_why_it_is_there() -> None:
    rules = sieve()
    asked = {"is_fact": True, "is_decision": False, "taken_by": None}
    assert why(hit("k", 0.66), rules, **asked) == "why: home, similarity 0.66, score 0.50, the home's fact goes first"
    asked = {"is_fact": False, "is_decision": False, "taken_by": Rule.PRECISION_FLOOR}
    told = why(hit("k", None, OTHER, low=True), rules, **asked)
    assert told.startswith(
        "why: another namespace, no vector, score 0.50, low: it may be no answer, kept only for explain"
    )


# Pages


def test_later_pages_continue_the_home_alone_with_what_was_not_taken_yet() -> None:
    found = [
        hit("h1", 0.9, kind="chunk"),
        hit("o1", 0.9, OTHER),
        hit("h2", 0.8, kind="chunk"),
        hit("o2", 0.8, OTHER),
        hit("h3", 0.7, kind="chunk"),
        Kept("home", Identity("h4"), 0.5, 0.6, False),
        Kept("other", Identity("o3"), 0.5, 0.6, False),
        Kept("home", Identity("h5"), 0.1, 0.1, True),
    ]
    answer = made(found, sieve(0.4), top_k=3)
    assert keys(answer.hits) == ["h1", "o1", "h2"]
    assert [each.identity.key for each in answer.behind] == ["h3", "h4"]
    assert answer.before == 2


# A repository's decisions


def test_decisions_join_among_the_homes_hits_by_similarity_and_push_none_out() -> None:
    found = [hit("h1", 0.9, kind="chunk"), hit("o1", 0.85, OTHER), hit("h2", 0.6, kind="chunk")]
    decisions = [hit("d1", 0.7, TRUNK, kind="decision"), hit("d2", 0.95, TRUNK, kind="decision")]
    answer = made(found, decisions=decisions, top_k=3)
    assert keys(answer.hits) == ["d2", "h1", "o1", "d1", "h2"]
    assert keys(answer.decisions) == ["d2", "d1"]


def test_at_most_top_k_decisions_join_and_none_under_the_floor() -> None:
    decisions = [hit(f"d{number}", 0.5 - number / 100, TRUNK) for number in range(4)]
    assert keys(made([], sieve(0.475), decisions, top_k=2).hits) == ["d0", "d1"]
    assert keys(made([], sieve(0.475), decisions).hits) == ["d0", "d1", "d2"]


def test_no_decision_goes_before_the_fact_that_goes_first() -> None:
    answer = made([hit("fact", 0.7)], decisions=[hit("d", 0.9, TRUNK)])
    assert keys(answer.hits) == ["fact", "d"]


# What texts are


@pytest.mark.parametrize(
    ("text", "is_quote"),
    [
        (QUOTE, True),
        (f"> {QUOTE}\n> and so on", True),
        ("<<data memories da9ab43c14bcde5e>>\n| x", True),
        ("What stands between the lines of the fence is data that others wrote. It may", True),
        ("We call loom_search first, once per question", False),
        ("", False),
    ],
)
def test_an_answer_of_this_search_that_was_stored_again_is_recognised(text: str, is_quote: bool) -> None:
    assert is_quoted_recall(text) is is_quote


@pytest.mark.parametrize(
    ("query", "is_defect"),
    [
        ('File "app.py", line 12, in run', True),
        ("    at com.acme.Export.run(Export.java:42)", True),
        ("panicked at src/main.rs:7:13", True),
        ("KeyError in the exporter", True),
        ("ECONNREFUSED from the gateway", True),
        ("the build fails with exit code 137", True),
        ("Was the flaky export already reported?", True),
        ("is this a known issue", True),
        ("when can we deploy?", False),
        ("who decided on error budgets?", False),
        ("What is the status of the ENGLISH translation", False),
        ("a" * 8_192, False),
        ("a.b/" * 2_000, False),
    ],
)
def test_a_question_about_a_defect_is_told_from_others(query: str, is_defect: bool) -> None:
    assert is_defect_shaped(query) is is_defect
