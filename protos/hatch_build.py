"""Lets the wheel of the contract generate its modules before it is packed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GenerateContract(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's own hook is generic in its builder
    """Runs `generate.py` for wheels and editable installs alike."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generates the contract and packs it; an editable install reads it where it lies."""
        sys.path.insert(0, str(Path(self.root)))
        import generate

        generate.generate()
        if version == "standard":
            build_data["force_include"] |= {
                str(generate.GEN / "loom"): "loom",
                str(generate.GEN / "buf"): "buf",
                str(generate.DESCRIPTOR_SET): "loom_protos/loom.binpb",
            }
