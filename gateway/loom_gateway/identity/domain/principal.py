"""Who asks identity for something: the holder of a token, or the operator of the deployment."""

from dataclasses import dataclass
from typing import Final

from loom_common.auth.claims import Claims
from loom_common.errors import AuthInsufficient, InvalidArgument

OPERATOR_SUBJECT: Final = "svc:operator"
"""Creator of what the operator makes. No token has a subject of this form, which is that of service credentials."""

SERVICE_PREFIX: Final = "svc:"


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of `claims`; where there are none, the operator, who administers every organisation.

    Attributes:
        claims: What the caller's token says; None for the operator.
        operator_org: Organisation that the operator means where a request names none.
        vouching: Subject that stands behind what it makes where there are no claims: the operator, or for a workload
            every agent of its trust.
    """

    claims: Claims | None
    operator_org: str = ""
    vouching: str = OPERATOR_SUBJECT

    @property
    def subject(self) -> str:
        """Subject on whose behalf it acts."""
        return self.claims.sub if self.claims else self.vouching

    @property
    def is_operator(self) -> bool:
        """Whether it is the operator of the deployment."""
        return self.claims is None

    @property
    def is_org_admin(self) -> bool:
        """Whether it administers the organisation that it acts in."""
        return self.claims is None or self.claims.org_admin

    @property
    def known_claims(self) -> Claims:
        """What the caller's token says; the operator has none, and is asked for before this."""
        assert self.claims is not None, "the operator is looked at first"
        return self.claims

    def org(self, asked: str | None) -> str:
        """Returns the organisation that a request is about.

        Raises:
            AuthInsufficient: It is not the token's.
            InvalidArgument: The operator named none.
        """
        if self.claims is None:
            org = asked or self.operator_org
            if not org:
                raise InvalidArgument.of("org", "is required from the operator, who belongs to no organisation")
            return org
        if asked and asked != self.claims.org:
            raise AuthInsufficient("The token belongs to another organisation.", detail={"org": asked})
        return self.claims.org
