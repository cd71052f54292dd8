"""Which agent a running call is by."""

from loom_common.auth.claims import Claims


def agent_of(claims: Claims | None) -> str:
    """Returns the agent of a token: the last part of `sa:<trust>:<agent>`; empty for people and service accounts."""
    parts = claims.sub.split(":", 2) if claims is not None else []
    return parts[2] if len(parts) == 3 and parts[0] == "sa" else ""
