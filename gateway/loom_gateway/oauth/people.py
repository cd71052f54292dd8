"""Who is signed in, and what is made in their name: what OAuth needs of sign-in and identity, and a fake of it."""

import secrets
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

from starlette.requests import Request

from loom_common.auth.claims import Role
from loom_common.errors import TokenRevoked


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who is signed in."""

    org: str
    subject: str
    """Whom tokens are made for, such as `ana@example.org`."""
    sid: str
    """The sign-in session that they came with."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a person has let a client do."""

    id: str
    """A session of the client's own: it is ended apart from the person's, and all that was made in it ends with it."""
    org: str
    subject: str
    client: str
    """Name of the client, as it registered itself."""
    role: Role
    """Most that its tokens may do in any of the person's namespaces."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token that was made now."""

    token: str = field(repr=False)
    expires_in_s: int


class People(Protocol):
    """Sign-in and identity, as OAuth sees them."""

    async def who(self, request: Request) -> Person | None:
        """Returns who sends the request, or None for nobody known."""
        ...

    def sign_in_url(self, return_to: str) -> str:
        """Returns where somebody signs in, who is then sent to `return_to`: a path of the gateway with its query."""
        ...

    async def open(self, person: Person, *, client: str, role: Role) -> Grant:
        """Makes a grant.

        Raises:
            AuthInsufficient: The person may give nothing away.
            LoomError: It cannot be stored.
        """
        ...

    async def token(self, grant: Grant) -> AccessToken:
        """Makes a token of a grant that says what its person holds now, and no more than the grant.

        Raises:
            TokenRevoked: The grant has ended.
            AuthInsufficient: The person holds nothing any more.
            LoomError: It cannot be made now.
        """
        ...

    async def end(self, grant: Grant) -> None:
        """Ends a grant and every token of it; one that has ended is no error.

        Raises:
            LoomError: It cannot be ended now.
        """
        ...


class FakePeople:
    """People in memory: whoever sends the cookie `person` is that person."""

    def __init__(self, org: str = "acme") -> None:
        self._org = org
        self.grants: dict[str, Grant] = {}
        self.ended: set[str] = set()
        self.tokens: list[str] = []

    async def who(self, request: Request) -> Person | None:
        """See `People.who`."""
        named = request.cookies.get("person")
        return Person(self._org, named, f"sid-{named}") if named else None

    def sign_in_url(self, return_to: str) -> str:
        """See `People.sign_in_url`."""
        return f"/sign-in?return_to={quote(return_to, safe='')}"

    async def open(self, person: Person, *, client: str, role: Role) -> Grant:
        """See `People.open`."""
        grant = Grant(f"oauth-{secrets.token_hex(8)}", person.org, person.subject, client, role)
        self.grants[grant.id] = grant
        return grant

    async def token(self, grant: Grant) -> AccessToken:
        """See `People.token`."""
        if grant.id in self.ended or grant.id not in self.grants:
            raise TokenRevoked("The grant has ended.")
        self.tokens.append(f"token-{len(self.tokens) + 1}-of-{grant.subject}")
        return AccessToken(self.tokens[-1], 3600)

    async def end(self, grant: Grant) -> None:
        """See `People.end`."""
        self.ended.add(grant.id)
