"""Settings of insights."""

from loom_common.settings import CommonSettings


class InsightsSettings(CommonSettings):
    """What insights reads; nothing of its own yet."""
