"""Rules of profiles and of procedures."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.auth.claims import Claims, NamespaceGrant, ReadScope, Role
from loom_common.call import Call, bind
from loom_common.errors import AuthInsufficient
from loom_memory.app.owned_items import own_user_id, readable_users
from loom_memory.domain.analyzer import analyze_query
from loom_memory.domain.memory import Identity
from loom_memory.domain.mining import Source
from loom_memory.procedures.domain.procedures import Kind, Procedure, ProcedureHit, experience, procedure_id
from loom_memory.procedures.domain.procedures import ranked as ranked_procedures
from loom_memory.profiles.domain.folding import read_sections
from loom_memory.profiles.domain.matching import matches_by_words
from loom_memory.profiles.domain.schemas import (
    FieldType,
    ProfileField,
    checked_fields,
    fields_from_json,
    fields_to_json,
)
from loom_memory.profiles.domain.sections import Owner, ProfileSection, fold_label, label_of, section_id

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def section(label: str, value: str) -> ProfileSection:
    return ProfileSection(label, value, "", "", NOW, 1)


def source(number: int, value: str) -> Source:
    return Source(Identity(f"k{number}", "ann"), value, "", NOW, number, "human:ann")


def test_a_label_is_one_however_it_is_spelled() -> None:
    ids = {section_id(Owner("ann"), label) for label in ("Home city", "home_city", "HOME-CITY", " home  city ")}
    assert len(ids) == 1
    assert section_id(Owner("ann"), "city") != section_id(Owner("", "ann"), "city")


@given(st.text(max_size=140))
def test_any_label_is_refused_or_stored_as_one_line_that_stays_as_it_is(text: str) -> None:
    try:
        label = label_of(text)
    except ValueError:
        return
    assert label_of(label) == label
    assert "\n" not in label
    assert fold_label(label)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (FieldType.NUMBER, "12.50", "12.5"),
        (FieldType.NUMBER, "1e400", None),
        (FieldType.NUMBER, "1_000", None),
        (FieldType.INTEGER, "+007", "7"),
        (FieldType.INTEGER, "7.5", None),
        (FieldType.INTEGER, "٧", None),
        (FieldType.INTEGER, "9" * 5000, None),
        (FieldType.BOOLEAN, "Yes", "true"),
        (FieldType.BOOLEAN, "perhaps", None),
        (FieldType.DATE, "2026-02-30", None),
        (FieldType.DATE, "2026-02-28", "2026-02-28"),
        (FieldType.LIST, "tea\n Tea \ncoffee\n", "tea\ncoffee"),
        (FieldType.CHOICE, "EMAIL", "email"),
        (FieldType.CHOICE, "fax", None),
    ],
)
def test_a_typed_value_has_one_form_or_is_refused(type_: FieldType, text: str, value: str | None) -> None:
    field = ProfileField("x", type_, choices=("email", "phone") if type_ is FieldType.CHOICE else ())
    if value is None:
        with pytest.raises(ValueError, match=r"is|must|twice|two"):
            field.value_of(text)
    else:
        assert field.value_of(text) == value
        assert field.value_of(value) == value


def test_a_schema_with_two_fields_of_one_label_or_choices_out_of_place_is_refused() -> None:
    good = (ProfileField("Plan", FieldType.CHOICE, "what they pay", ("free", "paid")), ProfileField("Age"))
    assert fields_from_json(fields_to_json(checked_fields(good))) == good
    for bad in (
        [ProfileField("home city"), ProfileField("Home_City")],
        [ProfileField("x", FieldType.CHOICE)],
        [ProfileField("x", FieldType.TEXT, choices=("a",))],
        [ProfileField("x", FieldType.CHOICE, choices=("a b", "A-B"))],
        [ProfileField(" ")],
    ):
        with pytest.raises(ValueError, match=r"is|must|twice|two"):
            checked_fields(bad)


def test_a_section_answers_by_half_of_the_words_or_by_its_label() -> None:
    held = section("diet", "vegetarian, no nuts")
    for query, expected in (
        ("what diet does she keep these days in summer", True),
        ("vegetarian nuts", True),
        ("where did the vegetarian restaurant near the old station move last year", False),
        ("deploy", False),
    ):
        assert matches_by_words(analyze_query(query).terms, held)[0] is expected, query


def test_what_no_memory_bears_out_is_not_folded() -> None:
    memories = [source(1, "I moved to Berlin in 2019"), source(2, "I love green tea")]

    def read(*entries: str) -> list[tuple[str, str]]:
        found = read_sections(f'Here: {{"sections": [{", ".join(entries)}]}}', memories, None)
        assert found is not None
        return [(one.label, one.value) for one in found]

    good = '{"label": "city", "value": "Berlin", "sources": [1]}'
    assert read(good) == [("city", "Berlin")]
    assert read(good, good, '{"label": "home town", "value": "berlin", "sources": [1]}') == [("city", "Berlin")]
    for bad in (
        '{"label": "city", "value": "Paris", "sources": [1]}',
        '{"label": "city", "value": "Berlin", "sources": [2]}',
        '{"label": "city", "value": "Berlin", "sources": []}',
        '{"label": "city", "value": "Berlin", "sources": [9]}',
        '{"label": "city", "value": "Berlin", "sources": [true]}',
        '{"label": "moved", "value": "Berlin 2020", "sources": [1]}',
        '{"label": "", "value": "Berlin", "sources": [1]}',
        '{"label": "city", "value": 7, "sources": [1]}',
        '{"label": "city", "value": "...", "sources": [1]}',
        '"Berlin"',
    ):
        assert read(bad) == [], bad
    assert read_sections("no idea", memories, None) is None
    assert read_sections('{"sections": "Berlin"}', memories, None) is None


def test_a_narrow_token_reads_and_writes_its_own_users_items_alone() -> None:
    def claims(scope: ReadScope, **more: str) -> Call:
        held = Claims(
            sub="sa:bot", org="acme", namespaces=(NamespaceGrant("team", Role.WRITER),), jti="j", iat=0, exp=1,
            read_scope=scope, **more,  # type: ignore[arg-type]  # names of the token's user and session
        )  # fmt: skip
        return Call(claims=held)

    with bind(claims(ReadScope.NAMESPACE)):
        assert (own_user_id("bob"), readable_users(None)) == ("bob", None)
    with bind(claims(ReadScope.OWN_USER, user_id="ann")):
        assert own_user_id("") == "ann"
        assert readable_users(None) == readable_users({"", "ann"}) == {"ann"}
        assert readable_users({"", "bob"}) == set()
        with pytest.raises(AuthInsufficient):
            own_user_id("bob")
    with bind(claims(ReadScope.OWN_SESSION, user_id="ann", session_id="s")):
        assert readable_users(None) == set()
        with pytest.raises(AuthInsufficient):
            own_user_id("ann")


def test_of_procedures_that_are_as_near_the_one_that_did_well_comes_first() -> None:
    one = Procedure("p-a", Kind.PROCEDURE, "s", "b", "", "", 1, "", NOW, NOW)
    good = replace(one, id="p-b", uses=10, successes=9)
    bad = replace(one, id="p-c", uses=10, successes=1)
    hits = [ProcedureHit(each, 0.6, by_words=False) for each in (bad, one, good)]
    assert [hit.procedure.id for hit in ranked_procedures(hits, 5)] == ["p-b", "p-a", "p-c"]
    near = ProcedureHit(bad, 0.75, by_words=False)
    assert ranked_procedures([*hits, near], 1) == (near,)
    assert experience(one) == 0
    assert procedure_id("A  b", "", "", Kind.PROCEDURE) == procedure_id("a b", "", "", Kind.PROCEDURE)
    assert procedure_id("a", "x", "", Kind.PROCEDURE) != procedure_id("a", "", "x", Kind.PROCEDURE)
