"""The sections of docs/benchmarks.md on what a search finds."""

from typing import Any, Final

from bench.report_tables import cells, run_line, spread, table

_MEASURES: Final = ("recall@5", "recall@10", "recall@20", "hit@5", "hit@10", "hit@20", "mrr")
_CATEGORIES: Final = ("single-hop", "multi-hop", "temporal", "open-domain", "adversarial")


def locomo(found: dict[str, Any]) -> str:
    """Returns the section of evidence recall on LoCoMo."""
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
        run_line(found["run"], "python -m bench locomo"),
        "",
        *table(["method", *_MEASURES], [[name, *cells(found_["all"], _MEASURES)] for name, found_ in methods.items()]),
        "",
        "Recall@10 by category:",
        "",
        *table(
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
        f"{spread(never['top_score'])}; of the questions above: {spread(never['top_score_of_stored'])}. The best "
        f"score tells the two apart with an AUC of {never['auc_of_top_score']:.3f}.",
        "",
    ]
    return "\n".join(lines)


_CARRIED: Final = ("recall@5", "recall@10", "recall@20", "conversations 1-5", "conversations 6-10")


def shapes(found: dict[str, Any]) -> str:
    """Returns the section of other shapes of the same conversations."""
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
            run_line(found["run"], "python -m bench shapes"),
            "",
            *table(
                ["shape", "texts", "method", *_CARRIED],
                [
                    [shape, f"{measured['rows']:,}", method, *cells(figures, _CARRIED)]
                    for shape, measured in found["shapes"].items()
                    for method, figures in measured["methods"].items()
                ],
            ),
            "",
        ]
    )


def precision(found: dict[str, Any]) -> str:
    """Returns the section of PrecisionMemBench."""

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
            run_line(found["run"], "python -m bench precision"),
            "",
            *table(
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
            *table(header, [row(name, measured) for name, measured in found["categories"].items()]),
            "",
        ]
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


_ABSTENTION: Final = ("precision", "recall", "answered", "first_is_right", "found_in_5", "auc_of_top_score")


def abstention(found: dict[str, Any]) -> str:
    """Returns the section of questions that nothing answers."""
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
            run_line(found["run"], "python -m bench abstention"),
            "",
            *table(
                ["", "precision", "recall", "answered", "first", "in 5", "AUC of the best score"],
                [[name, *(_share(each.get(key)) for key in _ABSTENTION)] for name, each in measured.items()],
            ),
            "",
            f"Of {far['questions']} questions that are far from every fact it abstains on {far['abstained']:.1%}; the "
            f"best score tells those from the answerable ones with an AUC of {far['auc_of_top_score']:.3f}.",
            "",
        ]
    )
