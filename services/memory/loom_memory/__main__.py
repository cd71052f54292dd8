"""Starts memory as a process of its own."""

from loom_common.process import run
from loom_memory.settings import MemorySettings
from loom_memory.wiring import open_service

if __name__ == "__main__":
    run(open_service, MemorySettings)
