"""The pieces of which the sections of docs/benchmarks.md are made."""

from typing import Any


def run_line(run: dict[str, Any], command: str) -> str:
    """Returns the line that says how, when and where a benchmark ran."""
    return (
        f"`{command}`, {run['date']}, commit {run['commit']}, {run['machine']}, Python {run['python']}, "
        f"Loom {run['loom']}, {run['engine']}."
    )


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Returns a Markdown table, a line each."""
    return [
        "| " + " | ".join(header) + " |",
        "|" + " --- |" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def cells(measures: dict[str, float], names: tuple[str, ...]) -> list[str]:
    """Returns measures as cells."""
    return [f"{measures[name]:.3f}" for name in names]


def times(found: dict[str, float]) -> str:
    """Returns the percentiles of a time, in milliseconds."""
    return " / ".join(f"{found[name]:.1f}" for name in ("p50_ms", "p95_ms", "p99_ms"))


def spread(found: dict[str, float]) -> str:
    """Returns the percentiles of scores."""
    return ", ".join(f"{found[name]:.2f}" for name in ("p5", "p50", "p95"))
