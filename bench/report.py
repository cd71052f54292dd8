"""Writes docs/benchmarks.md from the saved results."""

from pathlib import Path
from typing import Final

from bench import report_retrieval, report_services, results

PAGE: Final = Path(__file__).parent.parent / "docs" / "benchmarks.md"

_INTRODUCTION: Final = """# Benchmarks

Written by `make bench` from `bench/results/`; do not edit. Machines differ and are noisy: compare figures of one run
with each other, not with figures from elsewhere. Retrieval and latency use the public API with the settings that Loom
ships with; only the rate limits are raised, because a benchmark is one caller that sends as fast as it can.
"""


def write() -> None:
    """Writes the page; a benchmark that was never run is left out."""
    parts = [_INTRODUCTION]
    if locomo := results.load("locomo"):
        parts.append(report_retrieval.locomo(locomo))
    if shapes := results.load("shapes"):
        parts.append(report_retrieval.shapes(shapes))
    if precision := results.load("precision"):
        parts.append(report_retrieval.precision(precision))
    if abstention := results.load("abstention"):
        parts.append(report_retrieval.abstention(abstention))
    if memory := results.load("memory"):
        parts.append(report_services.memory(memory))
    if context := results.load("context"):
        parts.append(report_services.context(context))
    if embedding := results.load("embedding"):
        parts.append(report_services.embedding(embedding))
    if gates := results.load("gates"):
        parts.append(report_services.gates(gates))
    if llm := results.load("llm"):
        parts.append(report_services.llm(llm))
    if gateway := results.load("gateway"):
        parts.append(report_services.gateway(gateway))
    PAGE.write_text("\n".join(parts), "utf-8")
