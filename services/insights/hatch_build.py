"""Puts the documentation into the built package, where `help.search` reads it."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # hatchling asks for none here
    """Adds the pages; an editable install reads them where they are written."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See `BuildHookInterface.initialize`."""
        if version == "editable":
            return
        root = Path(self.root)
        # A source archive carries the pages beside the package; in the repository they are its own folder.
        docs = root / "docs" if (root / "docs").is_dir() else root.parent.parent / "docs"
        goal = "docs" if self.target_name == "sdist" else "loom_insights/docs"
        for page in sorted(docs.rglob("*.md")):
            build_data["force_include"][str(page)] = f"{goal}/{page.relative_to(docs).as_posix()}"
