"""What identity reads: how long keys sign, and how people sign in."""

from typing import Annotated, Final

from pydantic import Field, SecretStr

from loom_common.settings import ALLOWED_KEY, ModelCallsSettings

_URL: Final = r"^(?:https?://[^\s?#]+)?$"


class IdentitySettings(ModelCallsSettings):
    """Settings of identity, which is part of the gateway."""

    signing_key_days: int = Field(
        default=90,
        alias="LOOM_SIGNING_KEY_DAYS",
        ge=0,
        le=3650,
        description="Age at which the key that signs tokens is replaced, in days; 0 for never. What older keys signed "
        "stays good until it ends.",
    )
    session_hours: float = Field(
        default=12.0,
        alias="LOOM_SESSION_HOURS",
        gt=0,
        le=720,
        description="Life of a sign-in session, in hours.",
    )
    oidc_issuer: Annotated[str, Field(pattern=_URL)] = Field(
        default="",
        alias="LOOM_OIDC_ISSUER",
        json_schema_extra={ALLOWED_KEY: "https://host, with or without a path; http on loopback"},
        description="Identity provider that people sign in with, by its issuer's address. Empty: nobody signs in so.",
    )
    oidc_client_id: str = Field(
        default="",
        alias="LOOM_OIDC_CLIENT_ID",
        description="Identifier that the identity provider knows Loom by.",
    )
    oidc_client_secret: SecretStr | None = Field(
        default=None,
        alias="LOOM_OIDC_CLIENT_SECRET",
        description="Secret that goes with it; empty for a public client.",
    )
