"""Python client of Loom, the memory server for AI agents.

from loom_client import Loom

with Loom() as loom:  # LOOM_BASE_URL and LOOM_API_KEY
    loom.memory.set("Ana drinks tea in the morning", key="ana-drink")
    for hit in loom.memory.search("what does Ana drink?").hits:
        print(hit.score, hit.memory.value)
"""

from loom_client._generated.types import Memory, MemoryHit, MemoryInput
from loom_client.client import AsyncLoom, Loom
from loom_client.errors import LoomConfigError, LoomConnectionError, LoomError
from loom_client.transfer import ExportedLine, Imported, RefusedLine

__all__ = [
    "AsyncLoom",
    "ExportedLine",
    "Imported",
    "Loom",
    "LoomConfigError",
    "LoomConnectionError",
    "LoomError",
    "Memory",
    "MemoryHit",
    "MemoryInput",
    "RefusedLine",
]
