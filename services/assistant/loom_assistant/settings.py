"""Settings of the assistant."""

from loom_common.settings import CommonSettings


class AssistantSettings(CommonSettings):
    """What the assistant reads; nothing of its own yet."""
