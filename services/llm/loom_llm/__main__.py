"""Starts the llm service in a process of its own."""

from loom_common.process import run
from loom_llm.settings import LlmSettings
from loom_llm.wiring import open_service

if __name__ == "__main__":
    run(open_service, LlmSettings)
