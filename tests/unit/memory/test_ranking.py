from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from loom_memory.domain.query_cues import DateCue, QueryCues, read_cues
from loom_memory.domain.ranking import SEED_COUNT, Candidate, Found, Ranked, rank, seeds

FLOOR = 0.2
ANY = QueryCues(text="q")


def _row(key: str, **fields: object) -> Candidate:
    return Candidate(key=(key, "", ""), **fields)  # type: ignore[arg-type]  # the tests name real fields


def _turn(key: str, position: int, cosine: float | None, text: str = "", chars: int = 50) -> Candidate:
    return _row(key, cosine=cosine, session=("s",), position=position, chars=chars, text=text)


def _said(position: int, speaker: str) -> Candidate:
    return Candidate(
        key=(str(position),), cosine=0.3, session=("s",), position=position, chars=40, text="Chess.", speaker=speaker
    )


def _order(hits: list[Ranked]) -> list[str]:
    return [hit.candidate.key[0] for hit in hits]


def _rank(*candidates: Candidate, cues: QueryCues = ANY) -> list[Ranked]:
    return rank(candidates, cues, noise_floor=FLOOR)


def test_the_note_with_the_word_comes_first_with_the_highest_score() -> None:
    hits = _rank(_row("night", cosine=0.2), _row("coffee", cosine=0.5, bm25=1.0, share=0.8))
    assert _order(hits) == ["coffee", "night"]
    assert hits[0].score == max(hit.score for hit in hits) > 0.8
    assert (hits[0].is_low, hits[1].is_low) == (False, True)


def test_the_row_with_a_rare_identifier_leads_two_hundred_closer_notes() -> None:
    notes = [_row(f"{n:03}", cosine=0.75, bm25=3.0, share=0.35) for n in range(200)]
    hits = _rank(*notes, _row("code", cosine=0.1, bm25=9.0, share=0.4, exact=True))
    assert hits[0].candidate.key[0] == "code"
    assert not hits[0].is_low


def test_every_candidate_comes_back_once() -> None:
    rows = [_row(str(n), cosine=n / 100) for n in range(50)]
    assert sorted(_order(_rank(*rows))) == sorted(str(n) for n in range(50))


def test_a_topic_that_was_never_stored_has_only_low_hits() -> None:
    assert all(hit.is_low for hit in _rank(_row("a", cosine=0.24, share=0.1), _row("b", cosine=0.15)))


def test_a_row_that_only_the_lexical_leg_found_is_not_held_to_be_far() -> None:
    pool = [_row(f"near{n}", cosine=0.5) for n in range(5)]
    assert _order(_rank(*pool, _row("word", share=0.5, bm25=2.0)))[0] == "word"


def test_a_named_speaker_breaks_near_ties_and_does_not_beat_a_clear_match() -> None:
    cues = read_cues("What did Caroline eat?", ["Caroline", "Melanie"])
    hers = _row("hers", cosine=0.5, speaker="Caroline")
    assert _order(_rank(_row("a", cosine=0.55, speaker="Melanie"), hers, cues=cues)) == ["hers", "a"]
    assert _order(_rank(_row("a", cosine=0.9, speaker="Melanie"), hers, cues=cues)) == ["a", "hers"]


def test_a_named_date_lifts_what_was_told_then() -> None:
    cues = QueryCues(text="q", dates=(DateCue(2023, 5, 8),))
    rows = [_row(f"{day:02}", cosine=0.5, at=datetime(2023, 5, day, tzinfo=UTC)) for day in (1, 9, 20)]
    assert _order(_rank(*rows, cues=cues))[0] == "09"


def test_a_question_for_a_time_prefers_a_text_that_tells_one() -> None:
    cues = QueryCues(text="q", asks_when=True)
    rows = (_row("a", cosine=0.5, text="We moved."), _row("b", cosine=0.5, text="We moved last week."))
    assert _order(_rank(*rows, cues=cues))[0] == "b"


def test_a_short_turn_that_only_asks_comes_after_the_one_that_tells() -> None:
    rows = (_row("a", cosine=0.5, text="Do you like tea?"), _row("b", cosine=0.5, text="I like tea."))
    assert _order(_rank(*rows)) == ["b", "a"]


def test_a_short_turn_borrows_from_its_neighbours_in_the_session() -> None:
    rows = (_turn("asked", 1, 0.7), _turn("answer", 2, 0.3), _turn("elsewhere", 40, 0.33))
    assert _order(_rank(*rows)) == ["asked", "answer", "elsewhere"]
    assert not next(hit for hit in _rank(*rows) if hit.candidate.key[0] == "answer").is_low


def test_an_answer_gains_from_the_question_that_another_asks_before_it() -> None:
    asked = _turn("asked", 1, 0.6, text="Which sport do you play?")
    told = _turn("told", 1, 0.6, text="I play a sport.")
    after_question = next(hit for hit in _rank(asked, _said(2, "Bo"), _said(9, "Bo")) if hit.candidate.key[0] == "2")
    after_telling = next(hit for hit in _rank(told, _said(2, "Bo"), _said(9, "Bo")) if hit.candidate.key[0] == "2")
    assert after_question.order > after_telling.order


def test_a_speaker_does_not_answer_their_own_question() -> None:
    asked = Candidate(key=("asked",), cosine=0.6, session=("s",), position=1, chars=40, text="Why?", speaker="Bo")
    rows = (asked, _said(2, "Bo"), _said(9, "Bo"))
    other = (asked, _said(2, "Al"), _said(9, "Bo"))
    own, answer = (next(hit.order for hit in _rank(*each) if hit.candidate.key[0] == "2") for each in (rows, other))
    assert own < answer


def test_a_session_with_good_turns_lifts_its_others_wherever_they_stand() -> None:
    good = [Candidate(key=(f"g{n}",), cosine=0.7, session=("s",), position=n, chars=40) for n in range(3)]
    here = Candidate(key=("here",), cosine=0.3, session=("s",), position=30, chars=40)
    elsewhere = Candidate(key=("a elsewhere",), cosine=0.3, session=("t",), position=30, chars=40)
    found = _order(_rank(*good, here, elsewhere))
    assert found.index("here") < found.index("a elsewhere")


def test_rows_that_say_little_are_shown_only_beside_one_that_is_worth_a_look() -> None:
    little = _row("little", cosine=0.21)
    assert not _rank(little)[0].is_shown
    beside = next(hit for hit in _rank(little, _row("clear", cosine=0.6)) if hit.candidate.key[0] == "little")
    assert beside.is_shown
    assert beside.is_low


def test_a_long_message_stands_on_its_own() -> None:
    rows = (_turn("asked", 1, 0.7), _turn("long", 2, 0.3, chars=2_000), _turn("elsewhere", 40, 0.33, chars=2_000))
    assert _order(_rank(*rows)) == ["asked", "elsewhere", "long"]
    assert next(hit for hit in _rank(*rows) if hit.candidate.key[0] == "long").is_low


def test_among_long_messages_the_order_is_that_of_their_evidence() -> None:
    rows = [_turn(str(n), n, (37 * n % 50) / 50, chars=900) for n in range(50)]
    assert _order(_rank(*rows)) == [row.key[0] for row in sorted(rows, key=lambda row: (-(row.cosine or 0.0), row.key))]


def test_a_note_without_a_session_is_not_held_back_by_a_lively_chat() -> None:
    chat = [_turn(f"turn{n}", n, 0.4) for n in range(20)]
    assert _order(_rank(*chat, _row("note", cosine=0.55, chars=50)))[0] == "note"


def test_rows_of_different_sessions_lend_each_other_nothing() -> None:
    other = Candidate(key=("b", "", ""), cosine=0.3, session=("t",), position=2, chars=50)
    assert next(hit for hit in _rank(_turn("a", 1, 0.7), other) if hit.candidate is other).is_low


def test_ties_go_to_the_later_row_and_then_to_the_lower_key() -> None:
    old, new = datetime(2023, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)
    rows = (_row("c", cosine=0.5, at=old), _row("b", cosine=0.5, at=old), _row("z", cosine=0.5, at=new))
    assert _order(_rank(*rows)) == ["z", "b", "c"]


def test_the_seeds_are_the_best_rows_that_have_a_session() -> None:
    rows = [Found((f"{n:03}", "", "s"), n / 200, 0.0, has_session=True) for n in range(100)]
    said = Found(("said", "", "s"), None, 0.6, has_session=True)
    found = seeds([*rows, said, Found(("none", "", ""), 0.9, 0.9, has_session=False)])
    assert [key[0] for key in found] == ["said", *(f"{n:03}" for n in range(99, 100 - SEED_COUNT, -1))]


_ROWS = st.builds(
    Candidate,
    key=st.tuples(st.text(max_size=3), st.text(max_size=1), st.text(max_size=1)),
    cosine=st.none() | st.floats(-1, 1),
    share=st.floats(0, 1),
    exact=st.booleans(),
    session=st.sampled_from([(), ("", "s"), ("u", "s")]),
    position=st.none() | st.integers(0, 20),
    chars=st.integers(0, 500),
)


@given(st.lists(_ROWS, max_size=30, unique_by=lambda row: row.key))
def test_the_order_does_not_depend_on_how_the_candidates_arrive(rows: list[Candidate]) -> None:
    # Two rows in one place of a session do not occur: the store numbers them.
    places: set[object] = set()
    kept = []
    for row in rows:
        place = (row.session, row.position)
        if row.position is None or place not in places:
            places.add(place)
            kept.append(row)
    assert [hit.candidate for hit in _rank(*kept)] == [hit.candidate for hit in _rank(*reversed(kept))]
