"""LoCoMo: does a search find the turns that answer a question?

Every turn is stored through the public API with its speaker, session and date; every question is searched. Recall is
the share of a question's evidence among the first k hits. BM25 alone and vectors alone are computed in the same run,
over the same texts and with the same model. Questions about things that were never stored are asked as well.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.progress import track

from bench import results
from bench.datasets import NEVER_STORED, Conversation, Question, Turn, locomo
from bench.measures import CUTS, auc, averages, rank_measures
from bench.references import Embedder, bm25_scores, vector_scores
from bench.server import loom
from loom_client import Loom, MemoryInput

_BATCH: Final = 100


def run(data: Path) -> None:
    """Runs the benchmark and saves its figures."""
    conversations = locomo(data)
    figures: dict[str, Any] = {
        "conversations": len(conversations),
        "turns": sum(len(conversation.turns) for conversation in conversations),
        "questions": sum(len(conversation.questions) for conversation in conversations),
        "methods": {},
    }
    with loom() as server, Loom(server.http_url, server.token, timeout_s=120) as client:
        store_conversations(client, conversations)
        rows, top_scores = _search_all(client, conversations)
        figures["methods"]["loom"] = averages(rows)
        figures["never_stored"] = _never_stored(client, conversations, top_scores)
        figures["memory_mb"] = server.rss_bytes() >> 20
        figures["methods"] |= _references(conversations, Embedder(str(server.model_folder())))
    results.save("locomo", figures)
    for name, measures in figures["methods"].items():
        print(f"{name:<20}", {key: value for key, value in measures["all"].items() if key != "n"})
    print("never stored:", figures["never_stored"])


def store_conversations(client: Loom, conversations: list[Conversation]) -> None:
    """Stores every turn of the conversations, each under its conversation as the user."""
    for conversation in track(conversations, "storing", disable=_quiet()):
        items = [_memory(conversation, place, turn) for place, turn in enumerate(conversation.turns) if turn.text]
        for start in range(0, len(items), _BATCH):
            answer = client.memory.set_many(items[start : start + _BATCH], verbatim=True)
            if answer.error_count:
                refused = next(result for result in answer.results if result.message)
                raise SystemExit(f"bench: a turn was refused: {refused.reason}: {refused.message}")


def _memory(conversation: Conversation, place: int, turn: Turn) -> MemoryInput:
    moment = datetime.combine(turn.day, time(), UTC).isoformat() if turn.day else ""
    return MemoryInput(
        key=f"turn-{place:05d}",
        value=turn.text,
        user_id=conversation.id,
        session_id=turn.session,
        speaker=turn.speaker,
        event_time=moment,
        kind="chunk",
    )


def _search_all(
    client: Loom, conversations: list[Conversation]
) -> tuple[list[tuple[str, dict[str, float]]], list[float]]:
    asked = [(conversation, question) for conversation in conversations for question in conversation.questions]

    def search(item: tuple[Conversation, Question]) -> tuple[dict[str, float], float]:
        conversation, question = item
        hits = client.memory.search(question.text, top_k=max(CUTS), user_id=conversation.id).hits
        ranking = [int(hit.memory.key.removeprefix("turn-")) for hit in hits if hit.memory]
        return rank_measures(ranking, question), max((hit.score for hit in hits), default=0.0)

    with ThreadPoolExecutor(2) as pool:
        found = list(track(pool.map(search, asked), "asking", total=len(asked), disable=_quiet()))
    rows = [(question.category, measures) for (_, question), (measures, _) in zip(asked, found, strict=True)]
    return rows, [score for _, score in found]


def _never_stored(client: Loom, conversations: list[Conversation], positives: list[float]) -> dict[str, Any]:
    """Asks what nobody ever said; a good search returns nothing, or rows that are plainly low."""
    empty, unmarked, tops = 0, 0, []
    for conversation in conversations:
        for query in NEVER_STORED:
            hits = client.memory.search(query, top_k=10, user_id=conversation.id).hits
            empty += not hits
            unmarked += any(not hit.low for hit in hits)
            tops.append(max((hit.score for hit in hits), default=0.0))
    asked = len(conversations) * len(NEVER_STORED)
    return {
        "queries": asked,
        "answered_with_nothing": round(empty / asked, 4),
        "with_a_hit_not_marked_low": round(unmarked / asked, 4),
        "top_score": _spread(tops),
        "top_score_of_stored": _spread(positives),
        "auc_of_top_score": auc(positives, tops),
    }


def _spread(scores: list[float]) -> dict[str, float]:
    return {f"p{share}": round(float(np.percentile(scores, share)), 3) for share in (5, 50, 95)}


def _references(conversations: list[Conversation], embed: Embedder) -> dict[str, Any]:
    bm25, vector = [], []
    for conversation in track(conversations, "references", disable=_quiet()):
        for rows, scores in ((bm25, bm25_scores(conversation)), (vector, vector_scores(conversation, embed))):
            for question, row in zip(conversation.questions, scores, strict=True):
                ranking = np.argsort(-row, kind="stable")[: max(CUTS)].tolist()
                rows.append((question.category, rank_measures(ranking, question)))
    return {"bm25 alone": averages(bm25), "vector alone": averages(vector)}


def _quiet() -> bool:
    return not os.isatty(2)
