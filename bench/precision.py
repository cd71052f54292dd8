"""PrecisionMemBench: does a search return what applies, and nothing else?

35 beliefs about two domains, some superseded or settled, and 89 questions with the beliefs that should come back,
often none. Precision and recall of a case are the set's own: over the beliefs that a search returned, pinned ones
aside, which its harness shows by itself. Precision is none where nothing came back and nothing was wanted (in a
session, where nothing came back), recall where nothing was wanted. Like its harness the adapter follows a relation to
the beliefs that it names. Loom is searched with `quality_filter`.

The data set is for measuring only and is not part of this repository.
Source: https://github.com/tenurehq/precisionMemBench, MIT.
"""

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, Final

import numpy as np

from bench import results
from bench.measures import percentiles
from bench.references import Embedder, bm25_of, cosines_of
from bench.server import loom
from loom_client import Loom

DEFAULT_DATA: Final = Path(__file__).parent.parent.parent / "shared" / "data" / "precisionmembench"
_USER: Final = "test-user"
_MOST: Final = 20
_QUESTION: Final = "open_question"
_IN_SESSION: Final = "Session-level noise isolation"

PEERS: Final = {
    "tenure (the set's author)": (1.00, 1.00),
    "supermemory": (0.22, 0.71),
    "agentmemory": (0.17, 0.97),
    "vector": (0.09, 1.00),
    "zep": (0.09, 0.95),
    "mem0": (0.06, 0.99),
    "hindsight": (0.06, 1.00),
}
"""Mean precision and recall that the set's author published for others, its 77 single cases."""


@dataclass(frozen=True)
class Belief:
    """One belief of the set."""

    id: str
    user: str
    kind: str
    name: str
    aliases: tuple[str, ...]
    text: str
    scopes: tuple[str, ...]
    is_pinned: bool
    is_settled: bool
    replaced_by: str
    participants: tuple[str, ...]

    def scopes_meet(self, scopes: Sequence[str]) -> bool:
        """Says whether it holds in any of `scopes`."""
        return any(scope in scopes for scope in self.scopes)

    @property
    def value(self) -> str:
        """What is stored: the text, and the other names that it goes by."""
        return f"{self.text} ({', '.join(self.aliases)})" if self.aliases else self.text


@dataclass(frozen=True)
class Case:
    """One question, the beliefs that should come back, and what changes once it was asked."""

    category: str
    user: str
    scopes: tuple[str, ...]
    query: str
    most: int
    wanted: frozenset[str]
    created: Belief | None = None
    renamed: tuple[str, tuple[str, ...]] | None = None


def run(data: Path) -> None:
    """Runs the benchmark and saves its figures."""
    beliefs, single, session = _read(data)
    with loom() as server, Loom(server.http_url, server.token, timeout_s=120) as client:
        adapter = _Adapter(client, beliefs)
        found = {"single": adapter.answer(single), "session": adapter.answer(session)}
        embedder = Embedder(str(server.model_folder()))
    figures = {
        "beliefs": len(beliefs),
        "cases": len(single) + len(session),
        "loom": {part: _measured(cases, found[part]) for part, cases in (("single", single), ("session", session))},
        "categories": {
            category: _measured(*_only(category, single, found["single"]))
            for category in dict.fromkeys(case.category for case in single)
        },
        "latency": percentiles(adapter.seconds),
        "references": _references(beliefs, single, embedder),
        "peers": PEERS,
    }
    results.save("precision", figures)
    print({name: figures[name] for name in ("loom", "references", "latency")})


class _Adapter:
    """Stores the beliefs, and answers cases as the set's harness has every memory do it."""

    def __init__(self, client: Loom, beliefs: Sequence[Belief]) -> None:
        self._client = client
        self._beliefs = {belief.id: belief for belief in beliefs}
        self.seconds: list[float] = []
        for belief in beliefs:
            self._store(belief)

    def answer(self, cases: Iterable[Case]) -> list[list[str]]:
        """Returns the ids that each case gets, best first, and makes the changes that follow it."""
        answers = []
        for case in cases:
            answers.append(self._answer(case))
            if case.created is not None:
                self._beliefs[case.created.id] = case.created
                self._store(case.created)
            if case.renamed is not None:
                known = self._beliefs[case.renamed[0]]
                self._beliefs[known.id] = replace(known, aliases=(*known.aliases, *case.renamed[1]))
                self._store(self._beliefs[known.id])
        return answers

    def _store(self, belief: Belief) -> None:
        key = self._key(belief)
        self._client.memory.set(
            belief.value,
            key=key,
            user_id=belief.user,
            kind=belief.kind,
            tags=list(belief.scopes),
            pinned=belief.is_pinned,
            verbatim=True,
        )
        if belief.is_settled:
            self._client.memory.delete(key, user_id=belief.user)

    def _key(self, belief: Belief) -> str:
        """Returns the name of the last of those that replaced one another: they are versions of one memory."""
        while belief.replaced_by:
            belief = self._beliefs[belief.replaced_by]
        return belief.name

    def _answer(self, case: Case) -> list[str]:
        shown = [belief for belief in self._beliefs.values() if belief.user == case.user and not belief.replaced_by]
        pinned = [b for b in shown if b.is_pinned and b.kind != _QUESTION and b.scopes_meet(case.scopes)]
        by_name = {belief.name: belief for belief in shown}
        found: list[Belief] = []
        if case.query.strip() and case.most:
            began = time.perf_counter()
            hits = self._client.memory.search(
                case.query,
                top_k=_MOST,
                user_id=case.user,
                tags=list(case.scopes),
                kinds=self._kinds(),
                quality_filter=True,
            ).hits
            self.seconds.append(time.perf_counter() - began)
            found = [by_name[hit.memory.key] for hit in hits if hit.memory]
        found = [belief for belief in found if belief not in pinned]
        named = [self._beliefs[other] for belief in found for other in belief.participants]
        beside = [b for b in named if b.kind != _QUESTION and b.user == case.user and b.scopes_meet(case.scopes)]
        kept = dict.fromkeys(b.id for b in [*found, *beside] if b not in pinned)
        return list(kept)[: max(0, case.most - len(pinned))]

    def _kinds(self) -> list[str]:
        """Returns the kinds to search: the set's harness lists open questions by themselves."""
        return sorted({belief.kind for belief in self._beliefs.values()} - {_QUESTION})


def _read(folder: Path) -> tuple[list[Belief], list[Case], list[Case]]:
    """Returns the beliefs, those replaced before those that replaced them, the single cases and those of sessions."""
    if not (folder / "beliefs.seed.json").exists():
        sys.exit(f"bench: {folder} is missing; name the folder of PrecisionMemBench with --precision-data")
    raw = json.loads((folder / "beliefs.seed.json").read_text("utf-8"))
    beliefs = {each["_id"]: _belief(each) for each in raw}

    def age(belief: Belief) -> int:
        return 1 + age(beliefs[belief.replaced_by]) if belief.replaced_by else 0

    single = [
        _case(case["category"], case["query"], case)
        for case in json.loads((folder / "retrieval.cases.json").read_text("utf-8"))
    ]
    session = [
        _case(_IN_SESSION, turn["userMessage"], turn)
        for case in json.loads((folder / "session-retrieval.cases.json").read_text("utf-8"))
        for turn in case["turns"]
    ]
    return sorted(beliefs.values(), key=age, reverse=True), single, session


def _belief(raw: Mapping[str, Any]) -> Belief:
    return Belief(
        id=raw["_id"],
        user=raw["user_id"],
        kind=raw["type"],
        name=raw["canonical_name"],
        aliases=tuple(raw["aliases"]),
        text=raw["content"],
        scopes=tuple(raw["scope"]),
        is_pinned=raw["pinned"],
        is_settled=raw["resolved_at"] is not None,
        replaced_by=raw["superseded_by"] or "",
        participants=tuple(raw.get("participants", ())),
    )


def _case(category: str, query: str, raw: Mapping[str, Any]) -> Case:
    created, renamed = raw.get("createBeliefAtTurn"), raw.get("updateBeliefAtTurn")
    return Case(
        category=category,
        user=raw.get("userId", _USER),
        scopes=tuple(raw["scope"]),
        query=query,
        most=raw.get("budget", {}).get("maxBeliefs", _MOST),
        wanted=frozenset(raw["expect"].get("relevantBeliefs", {}).get("shouldOnlyInclude", ())),
        created=_belief(created) if created else None,
        renamed=(renamed["beliefId"], tuple(renamed["addAliases"])) if renamed else None,
    )


def _only(category: str, cases: Sequence[Case], answers: Sequence[list[str]]) -> tuple[list[Case], list[list[str]]]:
    kept = [(case, answer) for case, answer in zip(cases, answers, strict=True) if case.category == category]
    return [case for case, _ in kept], [answer for _, answer in kept]


def _measured(cases: Sequence[Case], answers: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Returns the set's mean precision and recall, and how many cases got exactly what was wanted."""
    pairs = [(case.wanted, frozenset(answer)) for case, answer in zip(cases, answers, strict=True)]
    in_session = bool(cases) and cases[0].category == _IN_SESSION
    counted = [(wanted, got) for wanted, got in pairs if got or (wanted and not in_session)]
    precisions = [len(wanted & got) / len(got) if got else 0.0 for wanted, got in counted]
    recalls = [len(wanted & got) / len(wanted) for wanted, got in pairs if wanted]
    return {
        "cases": len(pairs),
        "precision": round(mean(precisions), 4) if precisions else None,
        "recall": round(mean(recalls), 4) if recalls else None,
        "exact": sum(wanted == got for wanted, got in pairs),
        "exact_where_some_wanted": sum(wanted == got for wanted, got in pairs if wanted),
        "some_wanted": sum(bool(wanted) for wanted, _ in pairs),
    }


def _references(beliefs: Sequence[Belief], cases: Sequence[Case], embed: Embedder) -> dict[str, Any]:
    """Returns the same of BM25 alone and of vectors alone, with the same filters: every match, the 20 best at most."""
    texts = [f"{belief.name.replace('_', ' ')}: {belief.value}" for belief in beliefs]
    queries = [case.query or " " for case in cases]
    found = {}
    for name, scores in (("bm25 alone", bm25_of(texts, queries)), ("vector alone", cosines_of(texts, queries, embed))):
        answers = []
        for case, row in zip(cases, scores, strict=True):
            order = [beliefs[place] for place in np.argsort(-row, kind="stable") if row[place] > 0]
            kept = [
                belief.id
                for belief in order
                if belief.user == case.user
                and belief.scopes_meet(case.scopes)
                and not (belief.is_pinned or belief.is_settled or belief.replaced_by or belief.kind == _QUESTION)
            ]
            answers.append(kept[: case.most] if case.query.strip() else [])
        found[name] = _measured(cases, answers)
    return found
