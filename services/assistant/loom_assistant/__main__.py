"""Starts the assistant as a process of its own."""

from loom_assistant.settings import AssistantSettings
from loom_assistant.wiring import open_service
from loom_common.process import run

if __name__ == "__main__":
    run(open_service, AssistantSettings)
