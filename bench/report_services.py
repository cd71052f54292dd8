"""The sections of docs/benchmarks.md on time, and on the gates."""

from typing import Any

from bench.report_tables import run_line, table, times


def memory(found: dict[str, Any]) -> str:
    """Returns the section of set and search."""
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
        run_line(found["run"], f"python -m bench memory --sizes {','.join(found['sizes'])}"),
        "",
    ]
    rows = []
    for size, shapes_ in found["sizes"].items():
        for shape, systems in shapes_.items():
            rows += [_memory_row(size, shape, system, measured) for system, measured in systems.items()]
    header = ["memories", "in", "system", "set", "search", "again", "embed", "above embed", "overlap", "RSS MB"]
    lines += [*table(header, rows), ""]
    lines += [
        f"{int(size):,} in {shape}: {load['searchers']} searchers at once take {times(load['quiet'])}, beside a "
        f"writer {times(load['beside_a_writer'])} (p95 {load['p95_ratio']} times as long); of {load['written']:,} "
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
    def cell(name: str) -> str:
        return times(measured[name]) if name in measured else ""

    if "error" in measured:
        return [f"{int(size):,}", shape, system, "", f"failed: {measured['error']}", "", "", "", "", ""]
    return [
        f"{int(size):,}",
        shape,
        system,
        cell("set"),
        cell("search"),
        cell("search_again"),
        cell("embed_query"),
        f"{measured['above_embedding_p50_ms']:.1f}" if "above_embedding_p50_ms" in measured else "",
        f"{measured['overlap_with_exact']:.3f}" if "overlap_with_exact" in measured else "",
        f"{measured['rss_mb']:,}" if "rss_mb" in measured else "",
    ]


def context(found: dict[str, Any]) -> str:
    """Returns the section of searches over all planes and of packs."""
    lines = [
        "## Search over all planes, and packs",
        "",
        f"Times in milliseconds, p50/p95/p99, over HTTP, in one namespace with {found['documents']:,} documents and "
        f"{found['turns']:,} turns of conversations beside its memories. Every call has a question of its own, so that "
        "each embeds; `embed` is that call alone. `search.query` is `loom_search`; `whole by leg` is its median by "
        "that of the slowest single search. `pack` is `context.pack` as it is by default, `pack, all` with documents, "
        "conversations and runs; `above embed` is its median without the embedding.",
        "",
        run_line(found["run"], "python -m bench context"),
        "",
    ]
    names = ("memory.search", "knowledge.search", "conversation.search", "search.query", "pack", "pack_everything")
    rows = [
        [
            f"{int(size):,}",
            *(times(measured[name]) for name in names),
            times(measured["embed_query"]),
            f"{measured['search_by_slowest_leg']:.2f}",
            f"{measured['pack_above_embedding_p50_ms']:.1f}",
        ]
        for size, measured in found["sizes"].items()
    ]
    header = ["memories", *names[:-1], "pack, all", "embed", "whole by leg", "pack above embed"]
    return "\n".join([*lines, *table(header, rows), ""])


def embedding(found: dict[str, Any]) -> str:
    """Returns the section of the embedding service."""
    query, hit, inside = found["query"], found["cache_hit"], found["inside"]
    lines = [
        "## The embedding service",
        "",
        "Times in milliseconds, of `local:minilm`. The service is called over gRPC in a process of its own, nothing is "
        "kept between calls; the library is fastembed in the caller's process, over the same files and with its own "
        f"defaults. Both get the same texts in turn. The service computes {found['threads']} batches at once, one "
        "thread each.",
        "",
        run_line(found["run"], "python -m bench embedding"),
        "",
        *table(
            ["texts", "service p50/p95/p99", "library p50/p95/p99", "service / library", "service texts/s", "library"],
            [
                [
                    name,
                    times(measured["service"]),
                    times(measured["library"]),
                    f"{measured['ratio']:.2f}",
                    *(f"{measured['texts_per_s'][side]:,.0f}" for side in ("service", "library")),
                ]
                for name, measured in (*found["batches"].items(), ("one question", query))
            ],
        ),
        "",
        f"A question takes {query['added_ms']:.1f} ms more through the service. One that is asked again takes "
        f"{times(hit)} (p50/p95/p99). Where both are in one process, as under `loom up`, a question takes "
        f"{inside['added_ms']:.1f} ms more, and one that is asked again {times(inside['cache_hit'])}.",
        "",
        "Questions of several callers at once; those that wait share batches:",
        "",
        *table(
            ["callers", "p50/p95/p99", "calls /s"],
            [[count, times(measured), f"{measured['per_s']:,.0f}"] for count, measured in found["callers"].items()],
        ),
        "",
        "Memory of a process that embeds and nothing else, in MB:",
        "",
        *table(
            ["model", "RSS MB"],
            [[model, "files not at hand" if mb is None else f"{mb:,}"] for model, mb in found["memory_mb"].items()],
        ),
        "",
    ]
    return "\n".join(lines)


def gates(found: dict[str, Any]) -> str:
    """Returns the section of the gates."""
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
        run_line(found["run"], "python -m bench gates"),
        "",
        *table(["model", "gate", "cosine", "precision", "recall", "contradictions found"], rows),
        "",
        "Cosines of the pairs, 5th, 50th and 95th percentile:",
        "",
        *table(["model", *labels], cosines),
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
        *table(
            ["model", "pairs", "verdict", "cosine alone: precision", "recall", "with words: precision", "recall"], rows
        ),
        "",
    ]


def llm(found: dict[str, Any]) -> str:
    """Returns the section of the llm service."""
    rows = [
        [name, times(found[key]["sdk"]), times(found[key]["loom"]), f"{found[key]['overhead_p50_ms']:.1f}"]
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
        run_line(found["run"], "python -m bench llm"),
        "",
        *table(["call", "SDK p50/p95/p99", "Loom p50/p95/p99", "Loom adds at p50"], rows),
        "",
        "Where the caller is in the service's process, as under `loom up`, a whole answer takes "
        f"{found['inside']['added_ms']:.1f} ms more than through the SDK, and one from Loom's own cache "
        f"{times(found['inside']['cache_hit'])}.",
        "",
        f"An answer from Loom's own cache takes {times(found['cache_hit'])}. {streams['streams']} streams at once, "
        f"{streams['open_at_once']} of them open: {streams['threads_before']} threads in Loom's process before, "
        f"{streams['threads_during']} meanwhile; first token {times(streams['first_token'])}.",
        "",
    ]
    return "\n".join(lines)


def gateway(found: dict[str, Any]) -> str:
    """Returns the section of the gateway."""
    lines = [
        "## The gateway",
        "",
        "One call by three ways to the same service: direct gRPC, the gateway's HTTP, and Envoy's JSON transcoder (one "
        f"worker; version {found['envoy']}), which verifies no token, keeps no ledger and reads its requests less "
        "strictly. Each client is a connection that sends one call after the other. `calibration.get` needs no "
        "statement of the database. Times in milliseconds.",
        "",
        run_line(found["run"], "python -m bench gateway"),
        "",
    ]
    header = ["call", "way", "clients", "p50 / p99", "added at p50", "calls /s"]
    lines += [*table(header, _gateway_rows(found["calls"])), ""]
    if "calls_of_processes" in found:
        lines += [
            "The same with each service in a process of its own (`loom up --processes`):",
            "",
            *table(header, _gateway_rows(found["calls_of_processes"])),
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
