"""Starts insights as a process of its own."""

from loom_common.process import run
from loom_insights.settings import InsightsSettings
from loom_insights.wiring import open_service

if __name__ == "__main__":
    run(open_service, InsightsSettings)
