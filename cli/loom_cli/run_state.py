"""Where an interrupted run was, so that the next one goes on from there."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class RunState:
    """Where an interrupted run was, in a file beside the one that it is about."""

    path: Path

    def read(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Returns where a run with the same arguments was; empty where there is none."""
        try:
            held = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(held, dict) or held.get("asked") != json.loads(json.dumps(asked)):
            return {}
        found = held.get("at")
        return found if isinstance(found, dict) else {}

    def write(self, asked: dict[str, Any], at: dict[str, Any]) -> None:
        """Notes where the run is."""
        fresh = self.path.with_name(f"{self.path.name}.new")
        fresh.write_text(json.dumps({"asked": asked, "at": at}), "utf-8")
        fresh.replace(self.path)

    def remove(self) -> None:
        """Forgets it: the run is over."""
        self.path.unlink(missing_ok=True)
