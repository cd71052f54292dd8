"""What is known of an issued token, and who may end it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from loom_common.auth.claims import Claims
from loom_common.auth.revocations import Revocation, RevocationSet
from loom_gateway.identity.domain.principal import Principal


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One issued token: what it says and what it is for. The token itself is kept nowhere.

    Attributes:
        claims: What it says.
        label: What it is for, for people.
        made_by: Subject that made it; its own where it was made from a token of the same subject.
    """

    claims: Claims
    label: str
    made_by: str

    @property
    def created_at(self) -> datetime:
        """When it was made."""
        return datetime.fromtimestamp(self.claims.iat, UTC)

    @property
    def expires_at(self) -> datetime:
        """When it ends."""
        return datetime.fromtimestamp(self.claims.exp, UTC)

    def revoked_at_s(self, revocations: Mapping[str, Sequence[Revocation]]) -> float | None:
        """Returns when it was first ended, by itself or with what it depends on, or None where it was not.

        Args:
            revocations: Revocations by what they end.

        Returns:
            Units: seconds since 1970, UTC.
        """
        claims = self.claims
        behind = (claims.jti, *claims.parents, claims.sid, claims.sub, claims.creator, *claims.parent_subjects)
        times = [
            each.revoked_at
            for name in dict.fromkeys(behind)
            for each in revocations.get(name, ())
            # The verifier's own rule decides, so that a listing never says other than a call does.
            if RevocationSet([each]).revoked(claims)
        ]
        return min(times, default=None)


def may_revoke(principal: Principal, record: TokenRecord) -> bool:
    """Returns whether `principal` may end the token.

    The token itself may, a token that it was made from, whoever made it, its own subject, and who administers its
    organisation.
    """
    if principal.claims is None:
        return True
    caller, token = principal.claims, record.claims
    if caller.org != token.org:
        return False
    return (
        caller.org_admin
        or caller.jti == token.jti
        or caller.jti in token.parents
        or caller.sub in (record.made_by, token.sub)
    )
