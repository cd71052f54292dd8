"""Loom as the long-term memory of LangGraph."""

from loom_langgraph.store import LoomStore, NotStored

__all__ = ["LoomStore", "NotStored"]
