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
    if shapes := results.load("shapes"):
        parts.append(_shapes(shapes))
    if precision := results.load("precision"):
        parts.append(_precision(precision))
    if abstention := results.load("abstention"):
        parts.append(_abstention(abstention))
    if memory := results.load("memory"):
        parts.append(_memory(memory))
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


_CARRIED: Final = ("recall@5", "recall@10", "recall@20", "conversations 1-5", "conversations 6-10")


def _shapes(found: dict[str, Any]) -> str:
    return "\n".join(
        [
            "## Retrieval: other shapes of text",
            "",
            "The same conversations in other shapes, ranked by the one configuration that Loom has, in one process and "
            "without a store; `bm25 alone` and `vector alone` rank the texts with speaker and date in them, where the "
            "shape has any. The last two columns are recall@10 of each half of the conversations.",
            "",
            "How much of it was fitted: with its constants chosen anew by coordinate search on half of the "
            "conversations, in four of the shapes at once, and measured on the other half, recall@10 of the turns is "
            "0.796 on 6-10 and 0.819 on 1-5. The cues were thought up with all ten at hand.",
            "",
            _run_line(found["run"], "python -m bench shapes"),
            "",
            *_table(
                ["shape", "texts", "method", *_CARRIED],
                [
                    [shape, f"{measured['rows']:,}", method, *_cells(figures, _CARRIED)]
                    for shape, measured in found["shapes"].items()
                    for method, figures in measured["methods"].items()
                ],
            ),
            "",
        ]
    )


def _precision(found: dict[str, Any]) -> str:
    def row(name: str, measured: dict[str, Any]) -> list[str]:
        exact = f"{measured['exact']} of {measured['cases']}"
        wanted = f"{measured['exact_where_some_wanted']} of {measured['some_wanted']}"
        return [name, _share(measured["precision"]), _share(measured["recall"]), exact, wanted]

    header = ["", "precision", "recall", "exactly what was wanted", "where something was wanted"]
    single = found["loom"]["single"]
    peers = [
        [name, f"{precision:.2f}", f"{recall:.2f}", "", ""] for name, (precision, recall) in found["peers"].items()
    ]
    return "\n".join(
        [
            "## Precision: PrecisionMemBench",
            "",
            f"{found['beliefs']} beliefs, {found['cases']} cases, {single['cases']} of them single. Mean precision "
            "and recall as the set defines them, of a search with `quality_filter`; scopes are tags, a belief that "
            "replaced another is the next version of its key, a settled one is deleted. `bm25 alone` and `vector "
            "alone` return every match, at most 20, with the same filters. The peers' figures are those that the "
            "set's author published, with embedding models of the author's choice.",
            "",
            _run_line(found["run"], "python -m bench precision"),
            "",
            *_table(
                header,
                [
                    row("loom", single),
                    row("loom, in sessions", found["loom"]["session"]),
                    *(row(name, measured) for name, measured in found["references"].items()),
                    *peers,
                ],
            ),
            "",
            "By category, of Loom:",
            "",
            *_table(header, [row(name, measured) for name, measured in found["categories"].items()]),
            "",
        ]
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


_ABSTENTION: Final = ("precision", "recall", "answered", "first_is_right", "found_in_5", "auc_of_top_score")


def _abstention(found: dict[str, Any]) -> str:
    measured = {"loom": found["loom"], **found["references"]}
    measured |= {f"loom, {language}": each for language, each in found["languages"].items()}
    far = found["loom"]["far"]
    return "\n".join(
        [
            "## Abstention",
            "",
            f"{found['facts']} facts in six languages (`bench/data/abstention_facts.tsv`), {found['answerable']} "
            f"questions that one of them answers, and {found['unanswerable']} near misses, which ask what no fact "
            "says of a person or a thing that some fact is about. A search abstains when it returns nothing, or only "
            "hits that are marked low. Precision is the share of its abstentions that are right, recall the share of "
            "the near misses on which it abstains; `answered` is the share of the other questions on which it does "
            "not, `first` and `in 5` how often their fact comes first or among the first five.",
            "",
            _run_line(found["run"], "python -m bench abstention"),
            "",
            *_table(
                ["", "precision", "recall", "answered", "first", "in 5", "AUC of the best score"],
                [[name, *(_share(each.get(key)) for key in _ABSTENTION)] for name, each in measured.items()],
            ),
            "",
            f"Of {far['questions']} questions that are far from every fact it abstains on {far['abstained']:.1%}; the "
            f"best score tells those from the answerable ones with an AUC of {far['auc_of_top_score']:.3f}.",
            "",
        ]
    )


def _memory(found: dict[str, Any]) -> str:
    lines = [
        "## Set and search",
        "",
        "Times in milliseconds, p50/p95/p99. Loom is called over HTTP by its Python client: its figures hold HTTP, "
        "authentication, gRPC, the embedding and a durable, synced write. `embed` is the call for a query's embedding "
        "that is in each of its searches; `again` are the same questions asked a second time, whose embeddings are "
        "kept. mem0 (`infer=False`) and chroma are libraries in the caller's process that get vectors made before, "
        "with a condition on the user; `exact numpy` is the product of one namespace's vectors with the query. "
        "`overlap` is the share of the exact ten nearest that a search by vectors finds.",
        "",
        _run_line(found["run"], f"python -m bench memory --sizes {','.join(found['sizes'])}"),
        "",
    ]
    rows = []
    for size, shapes_ in found["sizes"].items():
        for shape, systems in shapes_.items():
            rows += [_memory_row(size, shape, system, measured) for system, measured in systems.items()]
    header = ["memories", "in", "system", "set", "search", "again", "embed", "above embed", "overlap", "RSS MB"]
    lines += [*_table(header, rows), ""]
    lines += [
        f"{int(size):,} in {shape}: {load['searchers']} searchers at once take {_times(load['quiet'])}, beside a "
        f"writer {_times(load['beside_a_writer'])} (p95 {load['p95_ratio']} times as long); of {load['written']:,} "
        f"memories written meanwhile {load['lost']} were not found at once.\n"
        for size, shapes_ in found["sizes"].items()
        for shape, systems in shapes_.items()
        if (load := systems["loom"].get("under_load"))
    ]
    if soak := found.get("soak"):
        lines += [
            f"{soak['minutes']:g} minutes of {soak['searches_per_s']:g} searches and {soak['sets_per_s']:g} writes a "
            f"second: RSS {soak['rss_mb']['after_warm_up']:,} MB after warm-up, {soak['rss_mb']['end']:,} MB at the "
            f"end ({soak['rss_mb_per_hour']:+.0f} MB an hour), threads {soak['threads']['after_warm_up']} and "
            f"{soak['threads']['end']}.",
            "",
        ]
    return "\n".join(lines)


def _memory_row(size: str, shape: str, system: str, measured: dict[str, Any]) -> list[str]:
    def times(name: str) -> str:
        return _times(measured[name]) if name in measured else ""

    if "error" in measured:
        return [f"{int(size):,}", shape, system, "", f"failed: {measured['error']}", "", "", "", "", ""]
    return [
        f"{int(size):,}",
        shape,
        system,
        times("set"),
        times("search"),
        times("search_again"),
        times("embed_query"),
        f"{measured['above_embedding_p50_ms']:.1f}" if "above_embedding_p50_ms" in measured else "",
        f"{measured['overlap_with_exact']:.3f}" if "overlap_with_exact" in measured else "",
        f"{measured['rss_mb']:,}" if "rss_mb" in measured else "",
    ]


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
        *_verdicts(found["models"]),
    ]
    return "\n".join(lines)


def _verdicts(models: dict[str, Any]) -> list[str]:
    rows, pairs = [], {}
    for model, measured in models.items():
        for split, figures in measured["verdicts"].items():
            pairs[split] = f"{figures['pairs']} pairs, {figures['near_misses']} of them near misses"
            for verdict in ("duplicate", "conflict"):
                of = figures[verdict]
                rates = [
                    f"{of[rule][rate]:.3f}"
                    for rule in ("cosine_alone", "with_words")
                    for rate in ("precision", "recall")
                ]
                rows.append([model, split.replace("_", " "), verdict, *rates])
    return [
        "### Verdicts of a write",
        "",
        "A write calls a memory a repetition or a contradiction only where the cosine reaches the gate and the "
        "[words](user/gates.md#verdicts) say so. Pairs of `bench/data/verdicts.tsv`, in 12 languages: notes, chat, "
        "code; near misses are facts of one template, exchanged roles, additions, other tenses. "
        f"`seen` ({pairs['seen']}) was at hand when the rules were written; `held out` ({pairs['held_out']}) was "
        "written afterwards and changed nothing.",
        "",
        *_table(
            ["model", "pairs", "verdict", "cosine alone: precision", "recall", "with words: precision", "recall"], rows
        ),
        "",
    ]


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
    header = ["call", "way", "clients", "p50 / p99", "added at p50", "calls /s"]
    lines += [*_table(header, _gateway_rows(found["calls"])), ""]
    if "calls_of_processes" in found:
        lines += [
            "The same with each service in a process of its own (`loom up --processes`):",
            "",
            *_table(header, _gateway_rows(found["calls_of_processes"])),
            "",
        ]
    engine = ", ".join(f"{rate:,.0f} with {readers}" for readers, rate in found["engine_reads_per_s"].items())
    lines += [
        "The engine alone answers the statement of `memory.get` so many times a second on the same handles, by "
        f"readers: {engine}. `memory.get` over HTTP reaches {found['memory_get_share_of_engine']:.0%} of the best of "
        "these.",
        "",
    ]
    return "\n".join(lines)


def _gateway_rows(calls: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, ways in calls.items():
        for way in ("direct", "gateway", "envoy"):
            for clients, measured in ways.get(way, {}).items():
                added = ways["added"].get(way, {}).get(clients, {}).get("p50_ms", "")
                times = f"{measured['p50_ms']} / {measured['p99_ms']}"
                rows.append([name, way, clients, times, str(added), f"{measured['per_s']:,.0f}"])
    return rows


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
