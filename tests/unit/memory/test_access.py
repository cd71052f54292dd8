import pytest

from loom_common.auth.claims import Claims, NamespaceGrant, ReadScope, Role
from loom_common.call import Call, bind
from loom_common.errors import AuthInsufficient
from loom_memory.app.access import actor, own_filter, own_identity
from loom_memory.domain.memory import Filter, Identity


def claims(sub: str = "ann@example.com", **more: object) -> Claims:
    return Claims(
        sub=sub, org="acme", namespaces=(NamespaceGrant("team", Role.WRITER),), jti="t", iat=0, exp=1,
        **more,  # type: ignore[arg-type]  # any claim
    )  # fmt: skip


def test_a_token_of_the_namespace_reads_what_it_asks_for() -> None:
    with bind(Call(claims=claims())):
        assert own_filter(Filter(user_id="bob")) == Filter(user_id="bob")
        assert own_identity(Identity("k")) == Identity("k")


def test_a_token_of_one_user_reads_and_writes_that_user() -> None:
    with bind(Call(claims=claims(read_scope=ReadScope.OWN_USER, user_id="ann"))):
        assert own_filter(Filter(session_id="s")) == Filter(user_id="ann", session_id="s")
        assert own_identity(Identity("k")) == Identity("k", "ann")
        with pytest.raises(AuthInsufficient) as caught:
            own_filter(Filter(user_id="bob"))
        assert caught.value.detail["reason"] == "narrowed"
        with pytest.raises(AuthInsufficient):
            own_identity(Identity("k", "bob"))


def test_a_token_of_one_session_reads_that_session() -> None:
    with bind(Call(claims=claims(read_scope=ReadScope.OWN_SESSION, user_id="ann", session_id="s1"))):
        assert own_filter(Filter()) == Filter(user_id="ann", session_id="s1")
        with pytest.raises(AuthInsufficient):
            own_identity(Identity("k", "ann", "s2"))


def test_a_token_of_a_session_without_a_user_reads_and_writes_only_rows_that_name_none() -> None:
    with bind(Call(claims=claims(read_scope=ReadScope.OWN_SESSION, session_id="s1"))):
        assert own_filter(Filter()) == Filter(user_id="", session_id="s1")
        assert own_identity(Identity("k")) == Identity("k", "", "s1")
        with pytest.raises(AuthInsufficient):
            own_filter(Filter(user_id="ann"))
        with pytest.raises(AuthInsufficient):
            own_identity(Identity("k", "ann", "s1"))


def test_a_token_of_a_user_that_names_none_reads_and_writes_nothing() -> None:
    with bind(Call(claims=claims(read_scope=ReadScope.OWN_USER))):
        with pytest.raises(AuthInsufficient):
            own_filter(Filter())
        with pytest.raises(AuthInsufficient):
            own_identity(Identity("k"))


@pytest.mark.parametrize(
    ("sub", "expected"),
    [("ann@example.com", "human:ann@example.com"), ("sa:trust:bot", "process:sa:trust:bot")],
)
def test_the_actor_is_the_kind_and_the_subject(sub: str, expected: str) -> None:
    with bind(Call(claims=claims(sub))):
        assert actor() == expected
