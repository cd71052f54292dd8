"""Settings of sessions."""

from pydantic import Field
from pydantic.config import JsonDict

from loom_common.settings import ALLOWED_KEY, LoomSettings

_MODEL: JsonDict = {ALLOWED_KEY: "a model's name"}


class SessionSettings(LoomSettings):
    """What memory reads of sessions."""

    session_brief_llm: bool = Field(
        default=True,
        alias="LOOM_SESSION_BRIEF_LLM",
        description="Whether a model writes the briefs of sessions that no caller writes. Off, and where the model "
        "does not answer, they are made by rule.",
    )
    session_brief_llm_model: str = Field(
        default="",
        alias="LOOM_SESSION_BRIEF_LLM_MODEL",
        max_length=128,
        json_schema_extra=_MODEL,
        description="Model that writes the briefs of sessions. Empty: the served one.",
    )
