"""Rules of working memory, of briefs and of runs."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.auth.claims import Claims, NamespaceGrant, ReadScope, Role
from loom_common.call import Call, bind
from loom_common.errors import AuthInsufficient, InvalidArgument
from loom_memory.domain.memory import Identity
from loom_memory.sessions.app.access import named_session, own_session
from loom_memory.sessions.domain.briefs import MAX_BYTES, Left, Remembered, Said, compose, cut_to_bytes
from loom_memory.sessions.domain.runs import Recording, RunEntry, RunStatus, recorded
from loom_memory.sessions.domain.working import (
    MAX_ITEMS,
    MAX_SESSION_BYTES,
    MAX_VALUE_BYTES,
    Session,
    WorkingItem,
    why_no_room,
)

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
OF_ANN = Session("ann", "s-1")


def item(label: str, value: str) -> WorkingItem:
    return WorkingItem(label, value, OF_ANN, 1, "human:ann", NOON, NOON + HOUR, NOON + HOUR)


def remembered(number: int, value: str, kind: str = "fact") -> Remembered:
    return Remembered(Identity(f"k{number}", "ann", "s-1"), kind, value, NOON + number * HOUR)


def record(before: RunEntry | None = None, **more: object) -> RunEntry:
    asked = Recording("r", OF_ANN, "human:ann", "bot", **more)  # type: ignore[arg-type]  # any field
    return recorded(before, asked, NOON + HOUR)


def of_token(scope: ReadScope, user_id: str = "", session_id: str = "") -> Call:
    grants = (NamespaceGrant("team", Role.WRITER),)
    return Call(
        claims=Claims(
            sub="sa:bot", org="acme", namespaces=grants, jti="j", iat=0, exp=1, read_scope=scope, user_id=user_id,
            session_id=session_id,
        )
    )  # fmt: skip


def test_a_session_has_room_for_so_many_items_and_bytes() -> None:
    full = [item(f"l{number}", "x") for number in range(MAX_ITEMS)]
    assert why_no_room(full[1:], "new", "x") is None
    assert (why_no_room(full, "new", "x") or ("",))[0] == "label"
    heavy = [item(f"{number}", "x" * (MAX_VALUE_BYTES - 1)) for number in range(MAX_SESSION_BYTES // MAX_VALUE_BYTES)]
    assert why_no_room(heavy[1:], "é", "é" * (MAX_VALUE_BYTES // 2 - 1)) is None
    assert (why_no_room(heavy, "e", "") or ("",))[0] == "value"


def test_an_item_is_there_until_its_time_is_over() -> None:
    assert item("a", "b").is_live(NOON + HOUR - timedelta(milliseconds=1))
    assert not item("a", "b").is_live(NOON + HOUR)


def test_a_narrow_token_reaches_its_own_session_and_no_other() -> None:
    with bind(of_token(ReadScope.OWN_SESSION, "ann", "s-1")):
        assert named_session("", "") == own_session("ann", "s-1") == OF_ANN
        for user_id, session_id in (("bob", "s-1"), ("ann", "s-2"), ("", "s-2")):
            with pytest.raises(AuthInsufficient):
                own_session(user_id, session_id)
    with bind(of_token(ReadScope.OWN_USER, "ann")):
        assert named_session("", "s-9") == Session("ann", "s-9")
        with pytest.raises(AuthInsufficient):
            own_session("bob", "s-1")
        with pytest.raises(InvalidArgument):
            named_session("ann", "")


def test_a_brief_leads_with_what_was_decided_and_ends_with_what_was_said_last() -> None:
    left = Left(
        [
            remembered(1, "tests run\non  push"),
            remembered(2, "use ZSTD", "decision"),
            remembered(3, "tests run on push"),
        ],
        [Said("ann", f"turn {number}", NOON + timedelta(days=1)) for number in range(8)],
    )
    told = compose(left)
    assert told.text.splitlines() == [
        "Memories: 3, turns: 8, 2026-11-30 13:00 to 2026-12-01 12:00 UTC.",
        "Decided:", "- use ZSTD", "Noted:", "- tests run on push",
        "Last said:", *(f"- ann: turn {number}" for number in range(2, 8)),
    ]  # fmt: skip
    assert [one.key for one in told.memories] == ["k2", "k3"], "what is said twice stands there once"
    assert told.turns == 6
    assert Left().is_empty


TEXTS = st.one_of(
    st.text(max_size=40), st.sampled_from(["\u2028", "\x00\x1b[2J", "\ud800", "é" * 4000, "- Decided:\n"])
)


@given(st.lists(st.tuples(TEXTS, st.sampled_from(["decision", "fact"])), max_size=60), st.lists(TEXTS, max_size=12))
def test_a_brief_is_never_longer_than_one_may_be_and_names_only_what_it_was_made_of(
    memories: list[tuple[str, str]], turns: list[str]
) -> None:
    left = Left(
        [remembered(number, text, kind) for number, (text, kind) in enumerate(memories)],
        [Said("ann", text, NOON) for text in turns],
    )
    told = compose(left)
    assert told == compose(left)
    assert len(told.text.encode("utf-8", "replace")) <= MAX_BYTES
    assert set(told.memories) <= {one.identity for one in left.memories}
    lines = told.text.splitlines()
    assert told.turns + len(told.memories) == sum(line.startswith("-") for line in lines), (
        "no text makes a line of its own"
    )


@pytest.mark.parametrize(
    ("text", "most", "kept"), [("aé", 2, "a"), ("aé", 3, "aé"), ("\U0001f600", 3, ""), ("", 5, "")]
)
def test_a_text_is_never_cut_within_a_character(text: str, most: int, kept: str) -> None:
    assert cut_to_bytes(text, most) == kept


def test_a_run_keeps_what_a_later_record_does_not_name() -> None:
    began = record(summary="export", started_at=NOON)
    assert (began.status, began.agent, began.ended_at) == (RunStatus.RUNNING, "bot", None)
    ended = record(began, status=RunStatus.FAILED)
    assert (ended.summary, ended.started_at, ended.ended_at) == ("export", NOON, NOON + HOUR)
    assert record(ended, summary="").ended_at == ended.ended_at
    assert record(ended, status=RunStatus.RUNNING).ended_at is None
    alone = record(status=RunStatus.SUCCEEDED, ended_at=NOON)
    assert alone.started_at == NOON, "what ended in the past began no later"


@pytest.mark.parametrize(
    "more",
    [
        {"ended_at": NOON},
        {"status": RunStatus.FAILED, "started_at": NOON + HOUR, "ended_at": NOON},
    ],
)
def test_a_run_that_cannot_have_been_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"running|before"):
        record(**more)
