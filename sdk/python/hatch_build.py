"""Lets the client's wheel generate its typed operations from the contract before it is packed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GenerateClient(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's own hook is generic in its builder
    """Runs `generate_client.py`; a source distribution carries the result already."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generates the modules; `version` and `build_data` are hatchling's."""
        root = Path(self.root)
        if not (root.parent.parent / "protos" / "generate.py").exists():
            return
        sys.path.insert(0, str(root))
        import generate_client

        generate_client.generate()
