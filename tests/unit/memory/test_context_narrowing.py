"""Whose rows a pack reads."""

import pytest

from loom_common.auth.claims import Claims, NamespaceGrant, ReadScope, Role
from loom_common.call import Call, bind, current
from loom_common.errors import AuthInsufficient, InvalidArgument
from loom_common.usage import Usage
from loom_memory.app.access import own_filter
from loom_memory.context.app.narrowing import Reach, reach_of, reading_as
from loom_memory.domain.memory import Filter


def claims(read_scope: ReadScope = ReadScope.NAMESPACE, user_id: str = "", session_id: str = "") -> Claims:
    grants = (NamespaceGrant("team", Role.VIEWER),)
    return Claims(
        "sa:bot", "acme", grants, "j", 0.0, 1.0, user_id=user_id, session_id=session_id, read_scope=read_scope
    )


def test_a_request_narrows_and_never_widens() -> None:
    wide, user = claims(user_id="ann"), claims(ReadScope.OWN_USER, "ann")
    session = claims(ReadScope.OWN_SESSION, "ann", "s1")
    assert reach_of(wide, None, None, None) == Reach(ReadScope.NAMESPACE, "ann", "")
    assert reach_of(wide, ReadScope.OWN_USER, "bob", None) == Reach(ReadScope.OWN_USER, "bob", "")
    assert reach_of(user, ReadScope.NAMESPACE, None, None) == Reach(ReadScope.OWN_USER, "ann", "")
    assert reach_of(user, ReadScope.OWN_SESSION, None, "s9") == Reach(ReadScope.OWN_SESSION, "ann", "s9")
    assert reach_of(session, ReadScope.OWN_USER, None, None) == Reach(ReadScope.OWN_SESSION, "ann", "s1")
    assert reach_of(None, None, None, None) == Reach(ReadScope.NAMESPACE, "", "")


def test_anothers_rows_are_refused_and_nobodys_are_none() -> None:
    with pytest.raises(AuthInsufficient):
        reach_of(claims(ReadScope.OWN_USER, "ann"), None, "bob", None)
    with pytest.raises(AuthInsufficient):
        reach_of(claims(ReadScope.OWN_SESSION, "ann", "s1"), None, None, "s2")
    with pytest.raises(AuthInsufficient):
        reach_of(claims(ReadScope.OWN_USER), ReadScope.OWN_SESSION, None, "s1")
    with pytest.raises(InvalidArgument):
        reach_of(claims(), ReadScope.OWN_USER, None, None)
    with pytest.raises(InvalidArgument):
        reach_of(claims(), ReadScope.OWN_SESSION, "ann", None)


def test_everything_inside_reads_as_a_narrow_token_and_spends_for_the_call() -> None:
    call = Call(op="context.pack", claims=claims())
    with bind(call):
        with reading_as(Reach(ReadScope.OWN_SESSION, "ann", "s1")):
            assert own_filter(Filter()) == Filter(user_id="ann", session_id="s1")
            current().usage.merge(Usage(embedding_tokens=7))
        assert own_filter(Filter()) == Filter()
        with reading_as(Reach(ReadScope.NAMESPACE, "ann", "")):
            assert own_filter(Filter()) == Filter()
    assert call.usage.embedding_tokens == 7
