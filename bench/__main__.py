"""Runs the benchmarks and writes docs/benchmarks.md.

Usage: python -m bench [NAME ...] [--data DIR] [--sizes 1000,10000,100000] [--no-peers] [--keep DIR]
Without a name all of them run. Long ones belong in the background, with their output in a file.
"""

import argparse
from pathlib import Path

from bench import embedding, gates, gateway, latency, llm, locomo, report
from bench.datasets import DEFAULT_DATA

NAMES = ("locomo", "latency", "embedding", "gates", "llm", "gateway", "report")


def main() -> None:
    """Runs what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"what to run: {', '.join(NAMES)}; default: all")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="directory with the LoCoMo data set")
    parser.add_argument("--sizes", default="1000,10000", help="numbers of memories for the latency benchmark")
    parser.add_argument("--no-peers", action="store_true", help="measure Loom alone")
    parser.add_argument(
        "--keep", type=Path, help="directory in which loaded memories stay, so that a later run measures"
    )
    parser.add_argument(
        "--brief", action="store_true", help="only show that the gateway's benchmark works; save nothing"
    )
    options = parser.parse_args()
    names = options.names or NAMES
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    if "locomo" in names:
        locomo.run(options.data)
    if "latency" in names:
        sizes = [int(size) for size in options.sizes.split(",")]
        latency.run(options.data, sizes, with_peers=not options.no_peers, kept=options.keep)
    if "embedding" in names:
        embedding.run(options.data)
    if "gates" in names:
        gates.run()
    if "llm" in names:
        llm.run()
    if "gateway" in names:
        gateway.run(brief=options.brief)
    report.write()


if __name__ == "__main__":
    main()
