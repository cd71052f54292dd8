"""Writes docs/benchmarks.md from the saved results."""

from pathlib import Path
from typing import Any, Final

from bench import results

PAGE: Final = Path(__file__).parent.parent / "docs" / "benchmarks.md"
_MEASURES: Final = ("recall@5", "recall@10", "recall@20", "hit@5", "hit@10", "hit@20", "mrr")
_CATEGORIES: Final = ("single-hop", "multi-hop", "temporal", "open-domain", "adversarial")

_INTRODUCTION: Final = """# Benchmarks

Written by `make bench` from `bench/results/`; do not edit. Machines differ and are noisy: compare figures of one run
with each other, not with figures from elsewhere. Retrieval and latency use the public API with the settings that Loom
ships with; only the rate limits are raised, because a benchmark is one caller that sends as fast as it can.
"""


def write() -> None:
    """Writes the page; a benchmark that was never run is left out."""
    parts = [_INTRODUCTION]
    if locomo := results.load("locomo"):
        parts.append(_locomo(locomo))
    if latency := results.load("latency"):
        parts.append(_latency(latency))
    if embedding := results.load("embedding"):
        parts.append(_embedding(embedding))
    if gates := results.load("gates"):
        parts.append(_gates(gates))
    if llm := results.load("llm"):
        parts.append(_llm(llm))
    if gateway := results.load("gateway"):
        parts.append(_gateway(gateway))
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
        "text, to be added to theirs. All have a condition on the user, who owns every row. Loom alone was measured "
        "again after a change; the peers' rows are of earlier runs of the same day.",
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
                    "not measured" if measured["bulk_per_s"] is None else f"{measured['bulk_per_s']:,.0f}",
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


def _embedding(found: dict[str, Any]) -> str:
    query, hit = found["query"], found["cache_hit"]
    lines = [
        "## The embedding service",
        "",
        "Times in milliseconds, of `local:minilm`. The service is called over gRPC in a process of its own, nothing is "
        "kept between calls; the library is fastembed in the caller's process, over the same files and with its own "
        f"defaults. Both get the same texts in turn. The service computes {found['threads']} batches at once, one "
        "thread each.",
        "",
        _run_line(found["run"], "python -m bench embedding"),
        "",
        *_table(
            ["texts", "service p50/p95/p99", "library p50/p95/p99", "service / library", "service texts/s", "library"],
            [
                [
                    name,
                    _times(measured["service"]),
                    _times(measured["library"]),
                    f"{measured['ratio']:.2f}",
                    *(f"{measured['texts_per_s'][side]:,.0f}" for side in ("service", "library")),
                ]
                for name, measured in (*found["batches"].items(), ("one question", query))
            ],
        ),
        "",
        f"A question takes {query['added_ms']:.1f} ms more through the service. One that is asked again takes "
        f"{_times(hit)} (p50/p95/p99).",
        "",
        "Questions of several callers at once; those that wait share batches:",
        "",
        *_table(
            ["callers", "p50/p95/p99", "calls /s"],
            [[count, _times(measured), f"{measured['per_s']:,.0f}"] for count, measured in found["callers"].items()],
        ),
        "",
        "Memory of a process that embeds and nothing else, in MB:",
        "",
        *_table(
            ["model", "RSS MB"],
            [[model, "files not at hand" if mb is None else f"{mb:,}"] for model, mb in found["memory_mb"].items()],
        ),
        "",
    ]
    return "\n".join(lines)


def _gates(found: dict[str, Any]) -> str:
    rows, cosines = [], []
    for model, measured in found["models"].items():
        for gate in ("duplicate", "conflict"):
            of = measured[gate]
            found_share = f"{measured['conflicts_found']:.3f}" if gate == "conflict" else ""
            rows.append(
                [model, gate, f"{of['gate']:.4f}", f"{of['precision']:.3f}", f"{of['recall']:.3f}", found_share]
            )
        cosines.append(
            [model, *(", ".join(f"{value:.2f}" for value in spread) for spread in measured["cosines"].values())]
        )
    labels = list(next(iter(found["models"].values()))["cosines"])
    lines = [
        "## Gates of conflicts and duplicates",
        "",
        f"{found['pairs']} labelled pairs of memories (`bench/data/gates.tsv`), none of them among those that "
        "thresholds are measured with, against the gates that [calibration](operations/thresholds.md) gives each local "
        "model at hand. The gate of duplicates should pass what says the same; that of conflicts what speaks of the "
        "same fact, agreeing or not, because a cosine cannot tell a contradiction from a repetition. The last column "
        "is the share of the contradictions alone that pass it.",
        "",
        _run_line(found["run"], "python -m bench gates"),
        "",
        *_table(["model", "gate", "cosine", "precision", "recall", "contradictions found"], rows),
        "",
        "Cosines of the pairs, 5th, 50th and 95th percentile:",
        "",
        *_table(["model", *labels], cosines),
        "",
    ]
    return "\n".join(lines)


def _llm(found: dict[str, Any]) -> str:
    rows = [
        [name, _times(found[key]["sdk"]), _times(found[key]["loom"]), f"{found[key]['overhead_p50_ms']:.1f}"]
        for name, key in (("whole answer", "unary"), ("first token of a stream", "first_token"))
    ]
    streams = found["streams"]
    lines = [
        "## Calls to models",
        "",
        "Times in milliseconds. The provider is a stand-in on the same machine that answers at once; it is asked "
        "through its own SDK, and through the llm service over gRPC, in turn. What Loom adds is the difference of the "
        "medians.",
        "",
        _run_line(found["run"], "python -m bench llm"),
        "",
        *_table(["call", "SDK p50/p95/p99", "Loom p50/p95/p99", "Loom adds at p50"], rows),
        "",
        f"An answer from Loom's own cache takes {_times(found['cache_hit'])}. {streams['streams']} streams at once, "
        f"{streams['open_at_once']} of them open: {streams['threads_before']} threads in Loom's process before, "
        f"{streams['threads_during']} meanwhile; first token {_times(streams['first_token'])}.",
        "",
    ]
    return "\n".join(lines)


def _gateway(found: dict[str, Any]) -> str:
    lines = [
        "## The gateway",
        "",
        "One call by three ways to the same service: direct gRPC, the gateway's HTTP, and Envoy's JSON transcoder (one "
        f"worker; version {found['envoy']}), which verifies no token, keeps no ledger and reads its requests less "
        "strictly. Each client is a connection that sends one call after the other. `calibration.get` needs no "
        "statement of the database. Times in milliseconds.",
        "",
        _run_line(found["run"], "python -m bench gateway"),
        "",
    ]
    rows = []
    for name, ways in found["calls"].items():
        for way in ("direct", "gateway", "envoy"):
            for clients, measured in ways.get(way, {}).items():
                added = ways["added"].get(way, {}).get(clients, {}).get("p50_ms", "")
                times = f"{measured['p50_ms']} / {measured['p99_ms']}"
                rows.append([name, way, clients, times, str(added), f"{measured['per_s']:,.0f}"])
    lines += [*_table(["call", "way", "clients", "p50 / p99", "added at p50", "calls /s"], rows), ""]
    engine = ", ".join(f"{rate:,.0f} with {readers}" for readers, rate in found["engine_reads_per_s"].items())
    lines += [
        "The engine alone answers the statement of `memory.get` so many times a second on the same handles, by "
        f"readers: {engine}. `memory.get` over HTTP reaches {found['memory_get_share_of_engine']:.0%} of the best of "
        "these.",
        "",
    ]
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
