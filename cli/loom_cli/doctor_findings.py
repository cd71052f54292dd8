"""What `loom doctor` finds: one line each, with what to do."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line."""

    level: Level
    area: str
    """`settings`, `providers`, `directory`, `ports`, `gateway`, `services`, `tokens`, `clickhouse`, `migrations` or
    `clocks`."""
    message: str
    """What was found; one sentence."""
    advice: str = ""
    """What to do; empty where all is well."""

    def to_json(self) -> dict[str, str]:
        """Returns it as `--json` prints it."""
        return {"level": self.level.value, "area": self.area, "message": self.message, "advice": self.advice}


def ok(area: str, message: str) -> Finding:
    """Returns a finding that asks for nothing."""
    return Finding(Level.OK, area, message)


def warning(area: str, message: str, advice: str) -> Finding:
    """Returns a finding that an operator should know."""
    return Finding(Level.WARNING, area, message, advice)


def problem(area: str, message: str, advice: str) -> Finding:
    """Returns a finding that keeps Loom, or a part of it, from its work."""
    return Finding(Level.PROBLEM, area, message, advice)
