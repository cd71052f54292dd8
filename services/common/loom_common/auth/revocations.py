"""Which tokens have been ended before their time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from loom_common.auth.claims import Claims

RevocationKind = Literal["token", "subject", "session"]

REVOCATION_KINDS: frozenset[str] = frozenset(get_args(RevocationKind))


@dataclass(frozen=True, slots=True)
class Revocation:
    """Ends one token, every token of a subject that was issued until then, or a sign-in session.

    Attributes:
        kind: What `id` identifies.
        id: The token's `jti`, the subject, or the session's `sid`.
        org: Organisation that it holds in; empty for every one.
        revoked_at: Units: seconds since 1970-01-01 UTC.
    """

    kind: RevocationKind
    id: str
    revoked_at: float
    org: str = ""


class RevocationSet:
    """Holds revocations and tells whether one of them ends a token, its ancestors included."""

    def __init__(self, revocations: Iterable[Revocation] = ()) -> None:
        self._revoked_at: dict[tuple[str, str, str], float] = {}
        self.replace(revocations)

    def __len__(self) -> int:
        return len(self._revoked_at)

    def replace(self, revocations: Iterable[Revocation]) -> None:
        """Forgets what was held and holds `revocations`."""
        self._revoked_at = {}
        self.add(*revocations)

    def add(self, *revocations: Revocation) -> None:
        """Holds `revocations` too; of two for the same subject the later one counts."""
        for revocation in revocations:
            key = (revocation.kind, revocation.org, revocation.id)
            self._revoked_at[key] = max(revocation.revoked_at, self._revoked_at.get(key, 0.0))

    def revoked(self, claims: Claims) -> bool:
        """Returns whether the token, one of its ancestors, its session, or one of the subjects behind it is revoked."""
        if any(self._at("token", claims.org, token) is not None for token in (claims.jti, *claims.parents)):
            return True
        if claims.sid and self._at("session", claims.org, claims.sid) is not None:
            return True
        for subject, issued_at in claims.subjects_behind:
            revoked_at = self._at("subject", claims.org, subject)
            # A subject may be given new tokens after its old ones were ended, so only those until then are.
            if revoked_at is not None and issued_at <= revoked_at:
                return True
        return False

    def _at(self, kind: RevocationKind, org: str, name: str) -> float | None:
        held = [self._revoked_at.get((kind, scope, name)) for scope in (org, "")]
        return max((at for at in held if at is not None), default=None)
