"""Settings: one class per package, one environment variable per field."""

from loom_common.settings.allowed import ALLOWED_KEY
from loom_common.settings.base import (
    EMPTY_KEY,
    PREFIX,
    LoomSettings,
    SettingsError,
    known_names,
    refuse_unknown,
)
from loom_common.settings.common import Address, CommonSettings, HomePath, LowerCase, Service
from loom_common.settings.inference import InferenceSettings
from loom_common.settings.langfuse import LangfuseSettings
from loom_common.settings.manual import configuration_markdown
from loom_common.settings.model_calls import ModelCallsSettings
from loom_common.settings.providers import (
    KEY_RULE,
    OPENAI_BASE_URL,
    ApiKey,
    ProviderSettings,
)
from loom_common.settings.sealing import SealingSettings, Secret
from loom_common.settings.unknown import KUBERNETES_NAME, nearest
from loom_common.settings.urls import URL_PATTERN, URL_RULE

__all__ = [
    "ALLOWED_KEY",
    "EMPTY_KEY",
    "KEY_RULE",
    "KUBERNETES_NAME",
    "OPENAI_BASE_URL",
    "PREFIX",
    "URL_PATTERN",
    "URL_RULE",
    "Address",
    "ApiKey",
    "CommonSettings",
    "HomePath",
    "InferenceSettings",
    "LangfuseSettings",
    "LoomSettings",
    "LowerCase",
    "ModelCallsSettings",
    "ProviderSettings",
    "SealingSettings",
    "Secret",
    "Service",
    "SettingsError",
    "configuration_markdown",
    "known_names",
    "nearest",
    "refuse_unknown",
]
