"""Sign-in sessions, as tokens know them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.auth.claims import Claims, NamespaceGrant, Role
from loom_gateway.identity.domain.grants import Rights, granted
from loom_gateway.identity.domain.issue import Issue

SESSION_TOKEN_PREFIX: Final = "session-"  # noqa: S105 - how identifiers begin
"""What the identifier of a session's own token begins with; those of other tokens are drawn and begin otherwise."""

_RIGHTS_PREFIX: Final = "rights:"


def is_session_token(claims: Claims) -> bool:
    """Returns whether a token is a session's own, which is replaced every few minutes while the session lasts."""
    return bool(claims.sid) and claims.jti.startswith(SESSION_TOKEN_PREFIX)


def rights_holder(subject: str) -> str:
    """Returns the creator of a subject's session tokens: ending it ends them, and those issued later say what is left.

    No subject has a name of this form.
    """
    return f"{_RIGHTS_PREFIX}{subject}"


def is_rights_holder(subject: str) -> bool:
    """Returns whether a name is one of those under which session tokens stand."""
    return subject.startswith(_RIGHTS_PREFIX)


CLIENT_TOKEN_PREFIX: Final = "client-"  # noqa: S105 - how identifiers begin
"""What the identifier of a token begins with that a program got from a person; unlike a session's own it bounds what is
made from it."""

RESERVED_PREFIXES: Final = frozenset({SESSION_TOKEN_PREFIX, CLIENT_TOKEN_PREFIX})
"""What no service may let the identifier of a token begin with: the first outlives the token that it is made from."""

TOKEN_LIFE_S: Final = 300.0
"""Life of a session's own token. Source: what services take of each other; it is replaced before."""


def session_claims(session: "Session", rights: Rights, issue: Issue, *, client: "ClientShare | None" = None) -> Claims:
    """Returns what a token of a session says: what its person holds now, for a program no more than it was let.

    Args:
        session: The session, which has not ended.
        rights: What the person holds.
        issue: Identifier and moment.
        client: What a program was let; None for the session's own token.
    """
    most = client.role if client else Role.ADMIN
    grants = [NamespaceGrant(grant.namespace, min(grant.role, most)) for grant in granted(rights)]
    first_party = client is None or client.whole
    life_s = client.life_s if client else TOKEN_LIFE_S
    return Claims(
        sub=session.subject,
        org=session.org,
        namespaces=tuple(grants),
        jti=(SESSION_TOKEN_PREFIX if first_party else CLIENT_TOKEN_PREFIX) + issue.jti,
        iat=issue.now_s,
        exp=min(issue.now_s + life_s, session.expires_at.timestamp()),
        consumer=client.name if client else "loom-dashboard",
        creator=rights_holder(session.subject),
        sid=session.sid,
        org_admin=rights.org_admin and first_party,
    )


@dataclass(frozen=True, slots=True)
class ClientShare:
    """What a person lets a program do.

    Attributes:
        name: Name of the program.
        role: Most that its tokens may do in any namespace.
        life_s: Units: seconds that one of its tokens lives.
        whole: Whether it is the person's own and does all that the person may, as a session of a browser does.
    """

    name: str
    role: Role
    life_s: float
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """One person's sign-in.

    Attributes:
        sid: Its identifier, which tokens made in it carry.
        secret_digest: SHA-256 of the secret that its cookie holds, in hex.
        org: Organisation that it acts in.
        subject: The person.
        method: How they signed in: `link` or `oidc`; `login` for a
            program of the person's own, `client` for one that the person let in.
        created_at: When, UTC.
        expires_at: When it ends by itself, UTC.
        ended_at: When it was ended before that, UTC; None while it was not.
        version: Rises with each change.
    """

    sid: str
    secret_digest: str
    org: str
    subject: str
    method: str
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class SignInLink:
    """A link that signs one person in once.

    Attributes:
        digest: SHA-256 of its secret, in hex.
        org: Organisation that the session will act in.
        subject: The person.
        created_at: When it was made, UTC.
        expires_at: When it is good no longer, UTC.
        used_at: When it was used, UTC; None while it was not.
        version: Rises with each change.
    """

    digest: str
    org: str
    subject: str
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class DeviceApproval:
    """A person's word that the program which shows a code may act for it.

    Attributes:
        code_digest: SHA-256 of the code, in hex.
        org: Organisation of the person's session.
        subject: The person.
        approved_at: When, UTC.
        expires_at: When it is good no longer, UTC.
        used_at: When the program came, UTC; None while it has not.
        version: Rises with each change.
    """

    code_digest: str
    org: str
    subject: str
    approved_at: datetime
    expires_at: datetime
    used_at: datetime | None = None
    version: int = 0
