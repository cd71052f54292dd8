"""What listings by name share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from pydantic import JsonValue

from loom_common.errors import AuthInsufficient
from loom_common.page_tokens import encode_page_token
from loom_gateway.identity.domain.names import check_new_name
from loom_gateway.identity.domain.principal import Principal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing by name."""

    items: Sequence[T]
    next_page_token: str


def cut(found: Sequence[T], page_size: int, query: Mapping[str, JsonValue], name_of: Callable[[T], str]) -> Page[T]:
    """Returns a page of what was found, of which one more than fits was asked for."""
    if len(found) <= page_size:
        return Page(found, "")
    return Page(found[:page_size], encode_page_token([name_of(found[page_size - 1])], query))


def administered_org(principal: Principal, asked_org: str | None) -> str:
    """Returns the organisation of a request that only its administrator may make.

    Raises:
        AuthInsufficient: The caller does not administer it.
        InvalidArgument: Its name breaks the rule, or the operator named none.
    """
    org = principal.org(asked_org)
    if not principal.is_org_admin:
        raise AuthInsufficient("Only a token that administers the organisation can do this.")
    check_new_name("org", org)
    return org


def whole_ms(moment: datetime) -> datetime:
    """Returns the moment as it is stored, so that the first answer and every later one say the same."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
