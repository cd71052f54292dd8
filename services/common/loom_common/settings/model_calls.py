"""Settings of the switch over calls to models, which identity keeps and the callers of models follow."""

from typing import Final, Self

from pydantic import Field, model_validator

from loom_common.settings.common import CommonSettings

# Identity tells of its last reading at least this often.
_TOLD_S: Final = 5.0


class ModelCallsSettings(CommonSettings):
    """What identity and the services that call models read of the switch."""

    policy_refresh_s: float = Field(
        default=2.0,  # Source: chosen; as long as a revocation may take
        alias="LOOM_MODEL_CALLS_POLICY_REFRESH_SECONDS",
        gt=0,
        le=3600,
        description="Time between two readings of which organisations' calls to models are switched off, in seconds. "
        "A switch is followed everywhere within it.",
    )
    policy_max_stale_s: float = Field(
        default=60.0,
        alias="LOOM_MODEL_CALLS_POLICY_MAX_STALE_SECONDS",
        gt=0,
        le=86_400,
        description="Age from which on what was read is not trusted: every call to a model for an organisation is "
        "refused then, in seconds.",
    )

    @model_validator(mode="after")
    def _stale_after_refresh(self) -> Self:
        if self.policy_max_stale_s < self.policy_refresh_s + _TOLD_S:
            raise ValueError(
                f"LOOM_MODEL_CALLS_POLICY_MAX_STALE_SECONDS must be at least {_TOLD_S:g} above "
                "LOOM_MODEL_CALLS_POLICY_REFRESH_SECONDS."
            )
        return self
