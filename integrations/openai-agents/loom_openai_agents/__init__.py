"""Loom as the memory of agents built with the OpenAI Agents SDK."""

from loom_openai_agents.session import LoomSession
from loom_openai_agents.tools import memory_tools

__all__ = ["LoomSession", "memory_tools"]
