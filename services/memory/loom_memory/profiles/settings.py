"""Settings of profiles."""

from pydantic import Field
from pydantic.config import JsonDict

from loom_common.settings import ALLOWED_KEY, InferenceSettings

_MODEL: JsonDict = {ALLOWED_KEY: "a model's name"}


class ProfileSettings(InferenceSettings):
    """What memory reads of how profiles are taken from memories."""

    profile_consolidation_enabled: bool = Field(
        default=False,
        alias="LOOM_PROFILE_CONSOLIDATION_ENABLED",
        description="Whether a model takes sections of users' profiles from their memories, in namespaces without a "
        "profile schema.",
    )
    structured_profile_enabled: bool = Field(
        default=True,
        alias="LOOM_STRUCTURED_PROFILE_ENABLED",
        description="Whether a model fills the fields of users' profiles from their memories, in namespaces with a "
        "profile schema.",
    )
    structured_profile_model: str = Field(
        default="",
        alias="LOOM_STRUCTURED_PROFILE_MODEL",
        max_length=128,
        json_schema_extra=_MODEL,
        description="Model that fills the fields of structured profiles. Empty: the served one.",
    )
