"""The `loom` command."""

from importlib.metadata import version

__version__ = version("loom-cli")
