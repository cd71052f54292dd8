"""Does what ranks one kind of text also rank others? LoCoMo in six shapes, ranked by one configuration.

The conversations as they are; their turns without speaker, session and date; with speaker and date in the text instead;
joined to messages of one speaker; and joined to messages of both. Ranking runs in this process: the same functions that
the service calls, over exact cosines and the same lexical numbers, without a store. BM25 alone and vectors alone rank
the texts with their speakers and dates in them, as a store without fields would hold them.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time
from pathlib import Path
from statistics import mean
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rich.progress import track

from bench import results
from bench.datasets import Conversation, Question, Turn, locomo
from bench.measures import CUTS, rank_measures
from bench.references import Embedder, Scores, bm25_of, cosines_of, text_of
from bench.server import model_folder
from loom_memory.domain import ranking
from loom_memory.domain.analyzer import AnalyzedQuery, analyze_query, analyze_text
from loom_memory.domain.query_cues import TOPIC_SHARE, read_cues, topic_of
from loom_memory.domain.ranking import Candidate, Found
from loom_memory.domain.scoring import K1, SHARE_K, B

# What calibration finds for the model.
_NOISE_FLOOR: Final = 0.2
# A vector is of at most this many words, as the service cuts a text that is longer than the model reads.
_WINDOW_WORDS: Final = 180
_OVERLAP_WORDS: Final = 25
_LEAST_ROWS: Final = 20

Shape = Callable[[Conversation], Conversation]


def run(data: Path) -> None:
    """Runs the benchmark and saves its figures."""
    conversations = locomo(data)
    embed = Embedder(str(model_folder()))
    shapes: dict[str, Shape] = {
        "turns": lambda each: each,
        "turns, no speaker, session, date": _without_fields,
        "turns, speaker and date in the text": _in_text,
        "messages of 50 words": lambda each: _joined(each, 50, by_speaker=True),
        "messages of 120 words": lambda each: _joined(each, 120, by_speaker=True),
        "messages of 200 words, both speakers": lambda each: _joined(each, 200, by_speaker=False),
    }
    figures: dict[str, Any] = {}
    for name, shape in shapes.items():
        found: dict[str, list[dict[str, float]]] = {"loom": [], "bm25 alone": [], "vector alone": []}
        halves: list[int] = []
        rows = 0
        for place, conversation in enumerate(track(conversations, name)):
            shaped = shape(conversation)
            rows += len(shaped.turns)
            halves += [place // 5] * len(shaped.questions)
            for method, orders in _orders(shaped, embed).items():
                found[method] += [
                    rank_measures(order, question) for order, question in zip(orders, shaped.questions, strict=True)
                ]
        figures[name] = {
            "rows": rows,
            "methods": {method: _averages(measured, halves) for method, measured in found.items()},
        }
        print(name, figures[name])
    results.save("shapes", {"shapes": figures})


def _averages(measured: Sequence[dict[str, float]], halves: Sequence[int]) -> dict[str, float]:
    names = [f"recall@{cut}" for cut in CUTS]
    found = {name: round(mean(each[name] for each in measured), 4) for name in names}
    for half, label in enumerate(("conversations 1-5", "conversations 6-10")):
        mine = [each["recall@10"] for each, of in zip(measured, halves, strict=True) if of == half]
        found[label] = round(mean(mine), 4)
    return found


def _without_fields(conversation: Conversation) -> Conversation:
    return _mapped(conversation, lambda turn: replace(turn, speaker="", day=None, session=""))


def _in_text(conversation: Conversation) -> Conversation:
    return _mapped(conversation, lambda turn: replace(turn, text=text_of(turn), speaker="", day=None, session=""))


def _mapped(conversation: Conversation, change: Callable[[Turn], Turn]) -> Conversation:
    return replace(conversation, turns=tuple(map(change, conversation.turns)))


def _joined(conversation: Conversation, words: int, *, by_speaker: bool) -> Conversation:
    """Joins turns of a session until they have `words`; each speaker's to messages of their own, or all in order."""
    done: list[Turn] = []
    place_of: dict[int, int] = {}
    waiting: dict[str, tuple[Turn, list[int]]] = {}

    def close(name: str) -> None:
        turn, members = waiting.pop(name)
        place_of.update(dict.fromkeys(members, len(done)))
        done.append(turn)

    for place, turn in enumerate(conversation.turns):
        for name in [name for name, (other, _) in waiting.items() if other.session != turn.session]:
            close(name)
        name = turn.speaker if by_speaker else ""
        piece = turn if by_speaker else replace(turn, text=f"{turn.speaker}: {turn.text}", speaker="")
        if name in waiting:
            known, members = waiting[name]
            piece = replace(known, text=f"{known.text}\n{piece.text}")
            waiting[name] = piece, [*members, place]
        else:
            waiting[name] = piece, [place]
        if len(piece.text.split()) >= words:
            close(name)
    for name in list(waiting):
        close(name)
    questions = [replace(each, evidence=_moved(each, place_of)) for each in conversation.questions]
    return replace(conversation, turns=tuple(done), questions=tuple(questions))


def _moved(question: Question, place_of: dict[int, int]) -> tuple[int, ...]:
    return tuple(sorted({place_of[place] for place in question.evidence}))


def _orders(conversation: Conversation, embed: Embedder) -> dict[str, list[list[int]]]:
    texts = [_plain(turn) for turn in conversation.turns]
    queries = [question.text for question in conversation.questions]
    return {
        "loom": list(_ranked(conversation, embed)),
        "bm25 alone": _best(bm25_of(texts, queries)),
        "vector alone": _best(cosines_of(texts, queries, embed)),
    }


def _plain(turn: Turn) -> str:
    return text_of(turn) if turn.speaker else turn.text


def _best(scores: Scores) -> list[list[int]]:
    return [np.argsort(-row, kind="stable")[: max(CUTS)].tolist() for row in scores]


def _ranked(conversation: Conversation, embed: Embedder) -> Iterator[list[int]]:
    """Yields the order of the turns for each question, as a search ranks them."""
    index = _Index(conversation)
    speakers = sorted({turn.speaker for turn in conversation.turns} - {""})
    cues = [read_cues(question.text, speakers) for question in conversation.questions]
    cosines = _nearest_chunk(conversation, embed, _meanings([each.text for each in cues], embed))
    for each, row in zip(cues, cosines, strict=True):
        candidates = index.candidates(row, analyze_query(each.text))
        hits = ranking.rank(candidates, each, noise_floor=_NOISE_FLOOR)
        yield [int(hit.candidate.key[0]) for hit in hits if hit.is_shown][: max(CUTS)]


def _meanings(texts: Sequence[str], embed: Embedder) -> Scores:
    topics = embed([topic_of(text) or text for text in texts])
    leaning = (1 - TOPIC_SHARE) * embed(texts) + TOPIC_SHARE * topics
    found: Scores = leaning / np.linalg.norm(leaning, axis=1, keepdims=True)
    return found


def _nearest_chunk(conversation: Conversation, embed: Embedder, queries: Scores) -> Scores:
    chunks, owners = [], []
    for place, turn in enumerate(conversation.turns):
        words = turn.text.split()
        step = _WINDOW_WORDS - _OVERLAP_WORDS
        for start in range(0, max(len(words) - _OVERLAP_WORDS, 1), step):
            chunks.append(" ".join(words[start : start + _WINDOW_WORDS]) if len(words) > _WINDOW_WORDS else turn.text)
            owners.append(place)
    best = np.full((len(conversation.turns), len(queries)), -1, np.float32)
    np.maximum.at(best, np.asarray(owners), embed(chunks) @ queries.T)
    return best.T


@dataclass(frozen=True)
class _Lexical:
    bm25: npt.NDArray[np.float64]
    share: npt.NDArray[np.float64]
    exact: npt.NDArray[np.bool_]


class _Index:
    """One conversation as the legs of a search see it."""

    def __init__(self, conversation: Conversation) -> None:
        self._turns = conversation.turns
        analyzed = [analyze_text(turn.text) for turn in self._turns]
        self._counts = [Counter(each.term_ids) for each in analyzed]
        self._lengths = np.asarray([each.dl for each in analyzed], np.float64)
        self._positions: list[int] = []
        seen: Counter[str] = Counter()
        for turn in self._turns:
            seen[turn.session] += 1
            self._positions.append(seen[turn.session])

    def candidates(self, cosines: npt.NDArray[np.float32], query: AnalyzedQuery) -> list[Candidate]:
        """Returns both pools and the neighbours of the seeds."""
        words = self._lexical(query)
        near = set(np.argsort(-cosines, kind="stable")[: ranking.POOL_SIZE].tolist())
        by_words = np.lexsort((-words.bm25, ~words.exact))[: ranking.POOL_SIZE].tolist()
        said = {place for place in by_words if words.bm25[place] > 0}
        found = [
            Found(
                key=(str(place),),
                cosine=float(cosines[place]) if place in near else None,
                share=float(words.share[place]) if place in said else 0.0,
                has_session=bool(self._turns[place].session),
            )
            for place in sorted(near | said)
        ]
        around = self._around([int(key[0]) for key in ranking.seeds(found)])
        return [
            self._candidate(place, float(cosines[place]), words if place in said else None, place in around)
            for place in sorted(near | said | around)
        ]

    def _around(self, seeds: Sequence[int]) -> set[int]:
        found: set[int] = set()
        for seed in seeds:
            near = range(max(0, seed - ranking.WINDOW), min(len(self._turns), seed + ranking.WINDOW + 1))
            found.update(place for place in near if self._turns[place].session == self._turns[seed].session)
        return found

    def _candidate(self, place: int, cosine: float, words: _Lexical | None, is_placed: bool) -> Candidate:
        turn = self._turns[place]
        return Candidate(
            key=(str(place),),
            cosine=cosine,
            bm25=float(words.bm25[place]) if words else 0.0,
            share=float(words.share[place]) if words else 0.0,
            exact=bool(words.exact[place]) if words else False,
            speaker=turn.speaker,
            session=(turn.session,) if turn.session else (),
            position=self._positions[place] if is_placed else None,
            at=datetime.combine(turn.day, time(), UTC) if turn.day else None,
            chars=len(turn.text),
            text=turn.text[: ranking.EXCERPT_CHARS],
        )

    def _lexical(self, query: AnalyzedQuery) -> _Lexical:
        """Returns the numbers of `domain.scoring` for every turn."""
        size = len(self._turns)
        bm25, share, exact = np.zeros(size), np.zeros(size), np.zeros(size, np.bool_)
        length = K1 * (1 - B + B * self._lengths / max(self._lengths.mean(), 1.0))
        best = 0.0
        for term in query.terms:
            counts = np.asarray([each[term.term_id] for each in self._counts], np.float64)
            holders = int((counts > 0).sum())
            weight = term.weight * math.log(1 + (max(size, _LEAST_ROWS) - holders + 0.5) / (holders + 0.5))
            best += weight
            bm25 += weight * counts * (K1 + 1) / (counts + length)
            share += weight * counts / (counts + SHARE_K)
            exact |= (counts > 0) & term.is_identifier
        return _Lexical(bm25, share / best if best else share, exact)
