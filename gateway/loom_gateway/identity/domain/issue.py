"""What the issuer adds to a token."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Issue:
    """What the issuer adds to a token: its identifier and the moment. Units of `now_s`: seconds since 1970, UTC."""

    jti: str
    now_s: float
