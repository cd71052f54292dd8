"""Settings of the services that call providers of models."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field, SecretStr
from pydantic.config import JsonDict

from loom_common.settings.allowed import ALLOWED_KEY
from loom_common.settings.inference import InferenceSettings
from loom_common.settings.urls import URL_PATTERN, URL_RULE

OPENAI_BASE_URL: Final = "https://api.openai.com/v1"


def _sendable(key: SecretStr) -> SecretStr:
    # A header that cannot be sent fails in every call, and in each client by another error.
    if not all("!" <= character <= "~" for character in key.get_secret_value()):
        raise ValueError("a sign that a key has no use for was pasted with it")
    return key


ApiKey = Annotated[SecretStr, AfterValidator(_sendable)]
"""Key of a provider, which goes into a header."""

KEY_RULE: Final[JsonDict] = {ALLOWED_KEY: "printable ASCII without white space"}


class ProviderSettings(InferenceSettings):
    """What the services that call providers of models read."""

    openai_api_key: ApiKey | None = Field(
        default=None, alias="OPENAI_API_KEY", json_schema_extra=KEY_RULE, description="Key for openai."
    )
    openai_base_url: str = Field(
        default=OPENAI_BASE_URL,
        alias="LOOM_OPENAI_BASE_URL",
        pattern=URL_PATTERN,
        json_schema_extra=URL_RULE,
        description="Root of the OpenAI API, or of a server that speaks it, such as `http://localhost:11434/v1`.",
    )
    http_client_timeout_s: float = Field(
        default=20.0,
        alias="LOOM_HTTP_CLIENT_TIMEOUT_S",
        gt=0,
        le=600,
        description="Longest silence of a provider of vectors in one attempt, in seconds.",
    )
    http_client_connect_timeout_s: float = Field(
        default=5.0,
        alias="LOOM_HTTP_CLIENT_CONNECT_TIMEOUT_S",
        gt=0,
        le=600,
        description="Time to connect to a provider of vectors, in seconds.",
    )
