"""Reads tokens of other issuers: OIDC tokens of workloads, and those that an identity provider gives of a person."""

from typing import Final

import jwt

from loom_common.clock import Clock
from loom_gateway.identity.app.jwks import ALGORITHMS, Issuer, IssuerKeySource
from loom_gateway.identity.domain.trusts import TrustRefused

# Source: chosen. Clocks of machines under NTP differ by far less.
_CLOCK_SKEW_S: Final = 60.0
# What the RFCs that describe such tokens call them in the header's `typ`; absent is usual.
_TYPES: Final = frozenset({None, "JWT", "jwt", "at+jwt", "application/at+jwt"})


class IssuerTokens:
    """Reads tokens of other issuers."""

    def __init__(self, keys: IssuerKeySource, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    async def verified(self, issuer: Issuer, token: str) -> dict[str, object]:
        """Returns what a token says, once its signature, issuer, audience and times are good.

        Raises:
            TrustRefused: One of them is not.
            BackendUnavailable: The issuer's keys cannot be read now.
        """
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError):
            raise TrustRefused("it is no JWT") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS or header.get("typ") not in _TYPES or "crit" in header:
            raise TrustRefused("its header names a signature or a form that is not taken")
        if kid is not None and not isinstance(kid, str):
            raise TrustRefused("its key has no name")
        key = await self._keys.key(issuer, kid)
        # The key decides how it is used: an RSA key's text must never become the secret of an HMAC.
        if key is None or algorithm not in key.algorithms:
            raise TrustRefused("it was signed with a key that the issuer does not have")
        try:
            payload: dict[str, object] = jwt.decode(
                token,
                key.public,
                algorithms=[algorithm],
                audience=issuer.audience,
                issuer=issuer.issuer,
                # Times are compared below, with our own clock.
                options={
                    "require": ["exp", "iat", "iss", "aud"],
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                },
            )
        except (jwt.InvalidTokenError, ValueError) as error:
            raise TrustRefused(type(error).__name__) from None
        self._check_times(payload)
        return payload

    def _check_times(self, payload: dict[str, object]) -> None:
        now_s = self._clock.now().timestamp()
        times = {name: payload.get(name) for name in ("exp", "iat", "nbf") if name in payload}
        for name, value in times.items():
            # NaN, which Python's JSON reads, compares as neither past nor ahead.
            if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
                raise TrustRefused(f"its {name} is no time")
            if name == "exp" and value <= now_s - _CLOCK_SKEW_S:
                raise TrustRefused("it has expired")
            if name != "exp" and value > now_s + _CLOCK_SKEW_S:
                raise TrustRefused(f"its {name} lies ahead")
