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
from loom_common.settings.manual import configuration_markdown
from loom_common.settings.unknown import KUBERNETES_NAME, nearest

__all__ = [
    "ALLOWED_KEY",
    "EMPTY_KEY",
    "KUBERNETES_NAME",
    "PREFIX",
    "Address",
    "CommonSettings",
    "HomePath",
    "LoomSettings",
    "LowerCase",
    "Service",
    "SettingsError",
    "configuration_markdown",
    "known_names",
    "nearest",
    "refuse_unknown",
]
