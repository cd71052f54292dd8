from datetime import UTC, datetime, timedelta

import pytest

from loom_common.auth.claims import ALL_NAMESPACES, Claims, NamespaceGrant, Role
from loom_common.errors import InvalidArgument
from loom_gateway.identity.domain.names import check_new_name
from loom_gateway.identity.domain.namespaces import Namespace, is_readable, leading, named_namespaces

BORN = datetime(2026, 11, 30, tzinfo=UTC)


def space(name: str, *, owner: str = "", restricted: bool = False, org: str = "acme", age_s: int = 0) -> Namespace:
    return Namespace(org, name, "memory", owner, restricted, BORN - timedelta(seconds=age_s))


def claims(*names: str) -> Claims:
    grants = tuple(NamespaceGrant(name, Role.VIEWER) for name in names)
    return Claims(sub="ada", org="acme", namespaces=grants, jti="t", iat=0, exp=1)


def names(spaces: list[Namespace]) -> list[str]:
    return [space.name for space in spaces]


def test_the_home_leads_even_where_the_token_names_another_first() -> None:
    found = leading(claims("team", "mine"), [space("mine", owner="ada"), space("team")])

    assert names(found) == ["mine", "team"]


def test_without_a_home_the_tokens_order_holds() -> None:
    found = leading(claims("b", "a", "c"), [space("a"), space("c", owner="bob"), space("b")])

    assert names(found) == ["b", "a", "c"]


def test_the_oldest_of_several_own_namespaces_is_the_home() -> None:
    known = [space("new", owner="ada"), space("old", owner="ada", age_s=60)]

    assert names(leading(claims("new", "old"), known)) == ["old", "new"]


def test_owning_a_namespace_does_not_make_it_readable() -> None:
    assert names(leading(claims("team"), [space("mine", owner="ada"), space("team")])) == ["team"]


def test_an_org_wide_token_reads_its_home_but_no_restricted_one() -> None:
    wide = claims(ALL_NAMESPACES)

    assert names(leading(wide, [space("mine", owner="ada"), space("secret", owner="ada", restricted=True)])) == ["mine"]
    assert not is_readable(wide, space("secret", restricted=True))
    assert is_readable(claims("secret"), space("secret", restricted=True))


def test_a_namespace_of_another_organisation_is_not_readable() -> None:
    assert not is_readable(claims("a", ALL_NAMESPACES), space("a", org="other"))


def test_named_namespaces_keep_their_order_and_leave_the_wide_grant_out() -> None:
    assert named_namespaces(claims("b", ALL_NAMESPACES, "a")) == ["b", "a"]


@pytest.mark.parametrize("name", ["a", "Team.1", "ada@example.org", "sa:ci:bot", "x" * 128])
def test_a_name_within_the_rule_may_be_made(name: str) -> None:
    check_new_name("name", name)


@pytest.mark.parametrize("name", ["", "_system", "_none", "*", "-a", "a b", "a/b", "é", "a\n", "x" * 129])
def test_a_name_outside_the_rule_or_reserved_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        check_new_name("name", name)
