"""What a verified token says: its subject, and what that subject may read and write.

A total function reads the claims: any payload is either good, whole and bounded, or refused.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

ALL_NAMESPACES: Final = "*"
"""Stands for every unrestricted namespace of the organisation."""

NO_NAMESPACE: Final = "_none"
"""Stands in a scope where an operation addresses no namespace, and in rows about a call that named none."""

SYSTEM_NAMESPACE: Final = "_system"
"""Holds the deployment's own rows."""

RESERVED_NAMES: Final = frozenset({NO_NAMESPACE, SYSTEM_NAMESPACE})
"""Names of organisations and namespaces that no caller may create or address."""

# Bounds on what is read from a token. A token is at most 16 KiB, so these only name the field that is wrong.
_MAX_NAME: Final = 128
_MAX_TEXT: Final = 256
_MAX_GRANTS: Final = 64
_MAX_CHAIN: Final = 32


class Role(IntEnum):
    """Authority, in ascending order."""

    VIEWER = 1
    WRITER = 2
    ADMIN = 3
    ORG_ADMIN = 4

    @property
    def label(self) -> str:
        """The role as claims and the API spell it."""
        return self.name.lower()


class ReadScope(StrEnum):
    """What a token may read inside its namespaces."""

    NAMESPACE = "namespace"
    OWN_USER = "own_user"
    OWN_SESSION = "own_session"


class ClaimsError(ValueError):
    """A payload is not a set of claims; the text names the claim and never its value."""


@dataclass(frozen=True, slots=True)
class NamespaceGrant:
    """One namespace, or `*`, and the role on it: VIEWER, WRITER or ADMIN."""

    namespace: str
    role: Role


@dataclass(frozen=True, slots=True)
class Claims:
    """What a verified token says.

    Attributes:
        sub: Subject: an e-mail address, `sa:<name>` or `sa:<trust>:<agent>`.
        org: Organisation.
        namespaces: Grants, in the token's order; the first named one is the default namespace.
        jti: Identifier of the token.
        iat: Units: seconds since 1970-01-01 UTC, when it was issued.
        exp: Units: seconds since 1970-01-01 UTC, from when on it is refused.
        consumer: Program that the token was made for; empty when it was not said.
        parents: Identifiers of the tokens it was derived from, nearest first.
        creator: Subject that made it; empty when that is `sub`.
        parent_subjects: Subjects of the tokens it was derived from.
        parent_times: Units: seconds since 1970-01-01 UTC, when the oldest token before it was issued for which each of
            `parent_subjects` stands, in their order; empty where it was not said.
        sid: Sign-in session that it ends with; empty when there is none.
        user_id: User whose rows it may read, where `read_scope` is narrower than a namespace.
        session_id: Session whose rows it may read, where `read_scope` is `own_session`.
        read_scope: What it may read inside its namespaces.
        org_admin: Whether it administers the organisation.
    """

    sub: str
    org: str
    namespaces: tuple[NamespaceGrant, ...]
    jti: str
    iat: float
    exp: float
    consumer: str = ""
    parents: tuple[str, ...] = ()
    creator: str = ""
    parent_subjects: tuple[str, ...] = ()
    parent_times: tuple[float, ...] = ()
    sid: str = ""
    user_id: str = ""
    session_id: str = ""
    read_scope: ReadScope = ReadScope.NAMESPACE
    org_admin: bool = False

    def named_role(self, namespace: str) -> Role | None:
        """Returns the role that the token names for `namespace` itself; the largest where it is named twice."""
        roles = [grant.role for grant in self.namespaces if grant.namespace == namespace]
        return max(roles, default=None) if namespace != ALL_NAMESPACES else None

    @property
    def wide_role(self) -> Role | None:
        """The role on every unrestricted namespace of the organisation, or None for a token of named ones only."""
        roles = [grant.role for grant in self.namespaces if grant.namespace == ALL_NAMESPACES]
        if self.org_admin:
            roles.append(Role.ADMIN)
        return max(roles, default=None)

    def role_on(self, namespace: str) -> Role | None:
        """Returns the larger of the named and the org-wide role.

        On a restricted namespace only `named_role` counts; who knows that it is restricted asks for that one.
        """
        roles = [role for role in (self.named_role(namespace), self.wide_role) if role is not None]
        return max(roles, default=None)

    @property
    def default_namespace(self) -> str | None:
        """The first namespace that the token names, or None for a token of org-wide grants only."""
        return next((grant.namespace for grant in self.namespaces if grant.namespace != ALL_NAMESPACES), None)

    @property
    def subjects_behind(self) -> tuple[tuple[str, float], ...]:
        """Every subject that it depends on, each with the time of the token for which it stands; one may come twice.

        What a subject was given before it was ended is over, and so is all that was made of it afterwards: by a replica
        whose clock runs ahead, say.
        """
        times = self.parent_times or (self.iat,) * len(self.parent_subjects)
        own = ((subject, self.iat) for subject in (self.sub, self.creator) if subject)
        return (*own, *zip(self.parent_subjects, times, strict=True))

    @property
    def is_narrow(self) -> bool:
        """Whether it reads less than its namespaces hold."""
        return self.read_scope is not ReadScope.NAMESPACE

    def to_payload(self) -> dict[str, object]:
        """Returns the claims as a JWT payload; empty ones are left out."""
        payload: dict[str, object] = {
            "sub": self.sub,
            "org": self.org,
            "namespaces": [{"namespace": grant.namespace, "role": grant.role.label} for grant in self.namespaces],
            "jti": self.jti,
            "iat": self.iat,
            "exp": self.exp,
            "read_scope": self.read_scope.value,
        }
        optional: dict[str, object] = {
            "consumer": self.consumer,
            "parents": list(self.parents),
            "creator": self.creator,
            "parent_subjects": list(self.parent_subjects),
            "parent_times": list(self.parent_times),
            "sid": self.sid,
            "user_id": self.user_id,
            "session_id": self.session_id,
            "org_admin": self.org_admin,
        }
        payload.update({name: value for name, value in optional.items() if value})
        return payload


def claims_from_payload(payload: Mapping[str, object]) -> Claims:
    """Returns the claims of a JWT payload.

    Raises:
        ClaimsError: A claim is missing, of the wrong type, out of bounds, or contradicts another.
    """
    claims = Claims(
        sub=_text(payload, "sub", required=True),
        org=_text(payload, "org", required=True, limit=_MAX_NAME),
        namespaces=_grants(payload),
        jti=_text(payload, "jti", required=True, limit=_MAX_NAME),
        iat=_time(payload, "iat"),
        exp=_time(payload, "exp"),
        consumer=_text(payload, "consumer", limit=_MAX_NAME),
        parents=_texts(payload, "parents"),
        creator=_text(payload, "creator"),
        parent_subjects=_texts(payload, "parent_subjects"),
        parent_times=tuple(_moment(time, "parent_times") for time in _items(payload, "parent_times", _MAX_CHAIN)),
        sid=_text(payload, "sid"),
        user_id=_text(payload, "user_id"),
        session_id=_text(payload, "session_id"),
        read_scope=_read_scope(payload),
        org_admin=_flag(payload, "org_admin"),
    )
    if claims.org in RESERVED_NAMES or claims.org == ALL_NAMESPACES:
        raise ClaimsError("org is a reserved name")
    if claims.parent_times and len(claims.parent_times) != len(claims.parent_subjects):
        raise ClaimsError("parent_times does not fit parent_subjects")
    # A narrow token that does not say whose rows are its own would read either all of them or nobody's.
    if claims.read_scope is ReadScope.OWN_USER and not claims.user_id:
        raise ClaimsError("user_id is missing beside read_scope own_user")
    if claims.read_scope is ReadScope.OWN_SESSION and not claims.session_id:
        raise ClaimsError("session_id is missing beside read_scope own_session")
    return claims


def _checked(value: object, name: str, limit: int) -> str:
    if not isinstance(value, str):
        raise ClaimsError(f"{name} is not text")
    if len(value) > limit or any(ord(char) < 0x20 or 0xD800 <= ord(char) <= 0xDFFF for char in value):
        raise ClaimsError(f"{name} is too long or holds characters that are not allowed")
    return value


def _text(payload: Mapping[str, object], name: str, *, required: bool = False, limit: int = _MAX_TEXT) -> str:
    value = _checked(payload.get(name, ""), name, limit)
    if required and not value:
        raise ClaimsError(f"{name} is missing")
    return value


def _items(payload: Mapping[str, object], name: str, limit: int) -> Sequence[object]:
    value = payload.get(name, [])
    if not isinstance(value, list) or len(value) > limit:
        raise ClaimsError(f"{name} is not a list, or is too long")
    return value


def _texts(payload: Mapping[str, object], name: str) -> tuple[str, ...]:
    texts = tuple(_checked(item, name, _MAX_TEXT) for item in _items(payload, name, _MAX_CHAIN))
    if not all(texts):
        raise ClaimsError(f"{name} holds an empty text")
    return texts


def _grants(payload: Mapping[str, object]) -> tuple[NamespaceGrant, ...]:
    grants = []
    for item in _items(payload, "namespaces", _MAX_GRANTS):
        if not isinstance(item, dict):
            raise ClaimsError("namespaces holds what is no grant")
        namespace = _text(item, "namespace", required=True, limit=_MAX_NAME)
        if namespace in RESERVED_NAMES:
            raise ClaimsError("namespaces holds a reserved name")
        role = _GRANTED.get(_text(item, "role", required=True))
        if role is None:
            raise ClaimsError("namespaces holds an unknown role")
        grants.append(NamespaceGrant(namespace, role))
    return tuple(grants)


_GRANTED: Final = {role.label: role for role in (Role.VIEWER, Role.WRITER, Role.ADMIN)}


def _time(payload: Mapping[str, object], name: str) -> float:
    return _moment(payload.get(name), name)


def _moment(value: object, name: str) -> float:
    # bool is an int to Python and no time to anyone.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ClaimsError(f"{name} is missing or no number")
    # Source: year 9999, beyond which no date of ours is valid; also what keeps a huge integer from overflowing.
    if not 0 <= value <= 253_402_300_799 or not math.isfinite(value):
        raise ClaimsError(f"{name} is no time")
    return float(value)


def _read_scope(payload: Mapping[str, object]) -> ReadScope:
    text = _text(payload, "read_scope") or ReadScope.NAMESPACE.value
    try:
        return ReadScope(text)
    except ValueError:
        raise ClaimsError("read_scope is unknown") from None


def _flag(payload: Mapping[str, object], name: str) -> bool:
    value = payload.get(name, False)
    if not isinstance(value, bool):
        raise ClaimsError(f"{name} is not true or false")
    return value
