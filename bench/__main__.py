"""Runs the benchmarks and writes docs/benchmarks.md.

Usage: python -m bench [NAME ...] [--data DIR] [--sizes 1000,10000,100000] [--no-peers] [--keep DIR]
Without a name all of them run but `quick`, which asks real models and is run by itself.
Long ones belong in the background, with their output in a file.
"""

import argparse
from pathlib import Path

from bench import (
    abstention,
    bulk,
    context,
    embedding,
    gates,
    gateway,
    insights,
    llm,
    locomo,
    memory,
    precision,
    quick,
    report,
    shapes,
)
from bench.datasets import DEFAULT_DATA

NAMES = (
    "locomo",
    "shapes",
    "precision",
    "abstention",
    "memory",
    "context",
    "bulk",
    "embedding",
    "gates",
    "llm",
    "gateway",
    "insights",
    "report",
)


def main() -> None:
    """Runs what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"what to run: {', '.join(NAMES)}; default: all")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="directory with the LoCoMo data set")
    parser.add_argument(
        "--precision-data",
        type=Path,
        default=precision.DEFAULT_DATA,
        help="directory with the PrecisionMemBench data set",
    )
    parser.add_argument("--sizes", default="1000,10000", help="numbers of memories for the memory benchmark")
    parser.add_argument("--no-peers", action="store_true", help="measure Loom alone")
    parser.add_argument(
        "--keep", type=Path, help="directory in which loaded memories stay, so that a later run measures"
    )
    parser.add_argument(
        "--brief",
        action="store_true",
        help="only show that the benchmark of memory, context or the gateway works, or that of insights; save nothing",
    )
    parser.add_argument("--tier-mb", type=int, help="LOOM_MEMORY_TIER_MAX_MB of the memory benchmark")
    parser.add_argument("--soak-minutes", type=float, default=0.0, help="how long memory is used at a fixed rate")
    parser.add_argument("--judge-model", default=quick.JUDGE, help="model that judges the answers of `quick`")
    options = parser.parse_args()
    if options.names == ["quick"]:
        quick.run(options.data, options.judge_model)
        return
    names = options.names or NAMES
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    if "locomo" in names:
        locomo.run(options.data)
    if "shapes" in names:
        shapes.run(options.data)
    if "precision" in names:
        precision.run(options.precision_data)
    if "abstention" in names:
        abstention.run()
    if "memory" in names:
        sizes = [300] if options.brief else [int(size) for size in options.sizes.split(",")]
        memory.run(
            options.data,
            memory.Plan(
                sizes,
                with_peers=not options.no_peers,
                brief=options.brief,
                soak_minutes=options.soak_minutes,
                tier_mb=options.tier_mb,
                kept=options.keep,
            ),
        )
    if "context" in names:
        context_sizes = [300] if options.brief else context.SIZES
        context.run(options.data, context_sizes, brief=options.brief, kept=options.keep)
    if "bulk" in names:
        bulk.run()
    if "embedding" in names:
        embedding.run(options.data)
    if "gates" in names:
        gates.run()
    if "llm" in names:
        llm.run()
    if "gateway" in names:
        gateway.run(brief=options.brief)
    if "insights" in names:
        insights.run(brief=options.brief)
    report.write()


if __name__ == "__main__":
    main()
