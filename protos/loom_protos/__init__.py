"""What the generated contract cannot say in Python: its comments, and the registry of names."""

from __future__ import annotations

import functools
import json
from importlib import resources
from pathlib import Path
from typing import TypedDict

from google.protobuf import descriptor_pb2

__all__ = ["NameRegistry", "analysis_tables", "descriptor_set", "registry"]


class NameRegistry(TypedDict):
    """Every name that a user may set, call or meet, with the package that owns it."""

    settings: dict[str, str]
    """Environment variable to owning package."""
    ops: dict[str, str]
    """Operation to owning service."""
    errors: dict[str, str]
    """Reason of an error to owning package."""


@functools.cache
def descriptor_set() -> descriptor_pb2.FileDescriptorSet:
    """Returns the descriptors of the contract and its imports, comments included."""
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(_descriptor_bytes())
    return files


@functools.cache
def registry() -> NameRegistry:
    """Returns the registry of names that ships with the contract."""
    found: NameRegistry = json.loads(resources.files(__name__).joinpath("registry.json").read_text("utf-8"))
    return found


@functools.cache
def analysis_tables() -> list[dict[str, object]]:
    """Returns the tables and columns that an analysis may read, as their owners export them."""
    found: list[dict[str, object]] = json.loads(resources.files(__name__).joinpath("analysis.json").read_text("utf-8"))
    return found


def _descriptor_bytes() -> bytes:
    packed = resources.files(__name__).joinpath("loom.binpb")
    if packed.is_file():
        return packed.read_bytes()
    # An editable install runs from the source tree, where generated files live apart.
    return (Path(__file__).parent.parent / "gen" / "loom_protos" / "loom.binpb").read_bytes()
