"""Settings of services that seal rows: the secret of the deployment."""

from typing import Annotated

from pydantic import Field, SecretStr

from loom_common.sealing import MIN_SECRET_CHARS
from loom_common.settings.common import CommonSettings

Secret = Annotated[SecretStr, Field(min_length=MIN_SECRET_CHARS)]


class SealingSettings(CommonSettings):
    """What every service reads, and the secret that rows are sealed under."""

    jwt_secret: Secret | None = Field(
        default=None,
        alias="LOOM_JWT_SECRET",
        description="Secret that keys and other secrets in the database are sealed under. `loom up` makes it; "
        "deployments set it once and keep it.",
    )
    jwt_secret_previous: Secret | None = Field(
        default=None,
        alias="LOOM_JWT_SECRET_PREVIOUS",
        description="Secret before the current one: what it sealed can still be read.",
    )
