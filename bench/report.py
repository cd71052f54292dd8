"""Writes docs/benchmarks.md from the saved results."""

from pathlib import Path
from typing import Any, Final

from bench import results

PAGE: Final = Path(__file__).parent.parent / "docs" / "benchmarks.md"
_MEASURES: Final = ("recall@5", "recall@10", "recall@20", "hit@5", "hit@10", "hit@20", "mrr")
_CATEGORIES: Final = ("single-hop", "multi-hop", "temporal", "open-domain", "adversarial")

_INTRODUCTION: Final = """# Benchmarks

Written by `make bench` from `bench/results/`; do not edit. Machines differ and are noisy: compare figures of one run
with each other, not with figures from elsewhere. Both benchmarks use the public API with the settings that Loom ships
with; only the rate limits are raised, because a benchmark is one caller that sends as fast as it can.
"""


def write() -> None:
    """Writes the page; a benchmark that was never run is left out."""
    parts = [_INTRODUCTION]
    if locomo := results.load("locomo"):
        parts.append(_locomo(locomo))
    if latency := results.load("latency"):
        parts.append(_latency(latency))
    PAGE.write_text("\n".join(parts), "utf-8")


def _locomo(found: dict[str, Any]) -> str:
    methods = found["methods"]
    never = found["never_stored"]
    lines = [
        "## Retrieval: LoCoMo",
        "",
        f"{found['conversations']} conversations, {found['turns']:,} turns, {found['questions']:,} questions, no model "
        "that completes text. Every turn is a memory with its speaker, session and date as fields; a question finds "
        "turns of its conversation. Recall is the share of a question's evidence among the first k hits. `bm25 alone` "
        "(Porter2 stems, stop words) and `vector alone` (the same model) rank the text `(date) Speaker: words` in the "
        "same run.",
        "",
        _run_line(found["run"], "python -m bench locomo"),
        "",
        *_table(
            ["method", *_MEASURES], [[name, *_cells(found_["all"], _MEASURES)] for name, found_ in methods.items()]
        ),
        "",
        "Recall@10 by category:",
        "",
        *_table(
            ["method", *_CATEGORIES],
            [
                [name, *(f"{found_[category]['recall@10']:.3f}" for category in _CATEGORIES)]
                for name, found_ in methods.items()
            ],
        ),
        "",
        f"**Never-stored questions.** {never['queries']:,} searches for things that no conversation mentions: "
        f"{never['answered_with_nothing']:.1%} were answered with nothing, {never['with_a_hit_not_marked_low']:.1%} "
        "with at least one hit that is not marked low. Best score, 5th, 50th and 95th percentile: "
        f"{_spread(never['top_score'])}; of the questions above: {_spread(never['top_score_of_stored'])}. The best "
        f"score tells the two apart with an AUC of {never['auc_of_top_score']:.3f}.",
        "",
    ]
    return "\n".join(lines)


def _latency(found: dict[str, Any]) -> str:
    lines = [
        "## Latency and throughput",
        "",
        "Times in milliseconds. Loom is called over HTTP by its Python client: its figures hold HTTP, authentication, "
        "gRPC, the embedding and a durable, synced write. mem0 (`infer=False`) and chroma are libraries in the "
        "caller's process that get vectors made before by the same model; `embed` is what that model takes for one "
        "text, to be added to theirs. All have a condition on the user, who owns every row.",
        "",
        _run_line(found["run"], f"python -m bench latency --sizes {','.join(found['sizes'])}"),
        "",
    ]
    rows = []
    for size, systems in found["sizes"].items():
        for system, measured in systems.items():
            if "error" in measured:
                rows.append([f"{int(size):,}", system, f"failed: {measured['error']}", "", "", "", ""])
                continue
            embed = _times(measured["embed_text"]) if "embed_text" in measured else ""
            rows.append(
                [
                    f"{int(size):,}",
                    system,
                    _times(measured["set"]),
                    _times(measured["search"]),
                    embed,
                    f"{measured['bulk_per_s']:,.0f}",
                    f"{measured['rss_mb']:,}",
                ]
            )
    header = ["memories", "system", "set p50/p95/p99", "search p50/p95/p99", "embed p50/p95/p99", "bulk /s", "RSS MB"]
    lines += [*_table(header, rows), "", "Calls per second at 1, 4 and 16 clients:", ""]
    rates = [
        [f"{int(size):,}", kind, *(f"{rate:,.0f}" for rate in systems["loom"]["throughput_per_s"][kind].values())]
        for size, systems in found["sizes"].items()
        for kind in ("set", "search")
    ]
    lines += [*_table(["memories", "call", "1", "4", "16"], rates), ""]
    return "\n".join(lines)


def _run_line(run: dict[str, Any], command: str) -> str:
    return (
        f"`{command}`, {run['date']}, commit {run['commit']}, {run['machine']}, Python {run['python']}, "
        f"Loom {run['loom']}, {run['engine']}."
    )


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + " --- |" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def _cells(measures: dict[str, float], names: tuple[str, ...]) -> list[str]:
    return [f"{measures[name]:.3f}" for name in names]


def _times(found: dict[str, float]) -> str:
    return " / ".join(f"{found[name]:.1f}" for name in ("p50_ms", "p95_ms", "p99_ms"))


def _spread(found: dict[str, float]) -> str:
    return ", ".join(f"{found[name]:.2f}" for name in ("p5", "p50", "p95"))
