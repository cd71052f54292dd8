"""Abstention: does a search say that it knows nothing?

The facts and the questions are this repository's own (`bench/data/abstention_*.tsv`), in six languages. A hundred
questions are answered by one fact each. A hundred others are near misses: they ask something that no fact says of a
person or a thing that some fact is about. Those of `datasets.NEVER_STORED` are far from every fact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench import results
from bench.datasets import NEVER_STORED
from bench.measures import auc
from bench.references import Embedder, bm25_of, cosines_of
from bench.server import loom
from loom_client import Loom, MemoryInput

_DATA: Final = Path(__file__).parent / "data"
_BATCH: Final = 50
_TOP_K: Final = 10


@dataclass(frozen=True)
class Asked:
    """One question; `answer` is the key of the fact that answers it, empty where none does."""

    text: str
    language: str
    answer: str


@dataclass(frozen=True)
class Answer:
    """What a search gave: the keys of its hits, best first, whether any is not marked low, and the best score."""

    keys: tuple[str, ...]
    is_given: bool
    top: float


def facts() -> dict[str, str]:
    """Returns the text of each fact by its key."""
    rows = _rows("abstention_facts.tsv")
    return {key: text for key, _, text in rows}


def questions() -> list[Asked]:
    """Returns the questions, those with an answer first."""
    return [Asked(text, language, answer) for language, text, answer in _rows("abstention_questions.tsv")]


def run() -> None:
    """Runs the benchmark and saves its figures."""
    stored, asked = facts(), questions()
    far = [Asked(text, "far", "") for text in NEVER_STORED]
    with loom() as server, Loom(server.http_url, server.token, timeout_s=120) as client:
        _store(client, stored)
        answers = [_search(client, each) for each in [*asked, *far]]
        embedder = Embedder(str(server.model_folder()))
    near, away = answers[: len(asked)], answers[len(asked) :]
    known = [answer for each, answer in zip(asked, near, strict=True) if each.answer]
    figures: dict[str, Any] = {
        "facts": len(stored),
        "answerable": len(known),
        "unanswerable": len(near) - len(known),
        "loom": {
            **_measured(asked, near),
            "far": {
                "questions": len(away),
                "abstained": _share([not answer.is_given for answer in away]),
                "auc_of_top_score": auc([answer.top for answer in known], [answer.top for answer in away]),
            },
        },
        "languages": {
            language: _measured(*_only(language, asked, near)) for language in dict.fromkeys(e.language for e in asked)
        },
        "references": _references(stored, asked, embedder),
    }
    results.save("abstention", figures)
    print({key: value for key, value in figures.items() if key != "languages"})


def _rows(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (_DATA / name).read_text("utf-8").splitlines()[1:]]


def _store(client: Loom, stored: dict[str, str]) -> None:
    items = [MemoryInput(key=key, value=text, kind="fact") for key, text in stored.items()]
    for start in range(0, len(items), _BATCH):
        answer = client.memory.set_many(items[start : start + _BATCH], verbatim=True)
        if answer.error_count:
            refused = next(result for result in answer.results if result.message)
            raise SystemExit(f"bench: a fact was refused: {refused.reason}: {refused.message}")


def _search(client: Loom, asked: Asked) -> Answer:
    hits = client.memory.search(asked.text, top_k=_TOP_K).hits
    keys = tuple(hit.memory.key for hit in hits if hit.memory)
    return Answer(keys, any(not hit.low for hit in hits), max((hit.score for hit in hits), default=0.0))


def _only(language: str, asked: list[Asked], answers: list[Answer]) -> tuple[list[Asked], list[Answer]]:
    kept = [(each, answer) for each, answer in zip(asked, answers, strict=True) if each.language == language]
    return [each for each, _ in kept], [answer for _, answer in kept]


def _measured(asked: list[Asked], answers: list[Answer]) -> dict[str, float]:
    """Returns how well abstaining tells the questions without an answer, and how well the others are answered."""
    pairs = list(zip(asked, answers, strict=True))
    abstained = [each for each, answer in pairs if not answer.is_given]
    unknown = [answer for each, answer in pairs if not each.answer]
    known = [(each.answer, answer) for each, answer in pairs if each.answer]
    return {
        "precision": _share([not each.answer for each in abstained]),
        "recall": _share([not answer.is_given for answer in unknown]),
        "answered": _share([answer.is_given for _, answer in known]),
        "first_is_right": _share([key in answer.keys[:1] for key, answer in known]),
        "found_in_5": _share([key in answer.keys[:5] for key, answer in known]),
        "auc_of_top_score": auc([answer.top for _, answer in known], [answer.top for answer in unknown]),
    }


def _share(held: Sequence[bool]) -> float:
    """Returns the share of those that hold; 0 of none."""
    return round(sum(held) / len(held), 4) if held else 0.0


def _references(stored: dict[str, str], asked: list[Asked], embed: Embedder) -> dict[str, Any]:
    """Returns the same of BM25 alone and vectors alone, which cannot abstain: only their best scores can tell."""
    keys, texts = list(stored), list(stored.values())
    words = [each.text for each in asked]
    found = {}
    for name, scores in (("bm25 alone", bm25_of(texts, words)), ("vector alone", cosines_of(texts, words, embed))):
        orders = np.argsort(-scores, axis=1, kind="stable")
        known = [place for place, each in enumerate(asked) if each.answer]
        ranks = [(asked[place].answer, [keys[row] for row in orders[place][:5]]) for place in known]
        tops = scores.max(axis=1)
        found[name] = {
            "first_is_right": _share([key == rank[0] for key, rank in ranks]),
            "found_in_5": _share([key in rank for key, rank in ranks]),
            "auc_of_top_score": auc(
                [float(tops[place]) for place in known],
                [float(tops[place]) for place, each in enumerate(asked) if not each.answer],
            ),
        }
    return found
