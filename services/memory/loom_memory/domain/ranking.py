"""Fuses the legs of a search into one order.

Everything is on the absolute scale of its evidence, never stretched to the pool's own minimum and maximum: a leg that
found nothing good adds nothing good. Absolute shares also beat min-max fusion and RRF where they were compared
(recall@10 .707 against .687 and .591, measured: bench/locomo.py, 2026-11-30).

    evidence = .45 cosine + .55 share, plus `CUE` for each of: said by a named speaker, of a named date, tells a time
               when the query asks for one; minus `CUE` for a turn that only asks
    order    = evidence + shortness * (what the session lends - its mean over such rows) + 1 if exact
    lent     = of the turn before, more where another asks there, and of the turn after; of the best turns around, and
               of the best of the whole session

A short turn borrows from its neighbours, a long message stands on its own; without that the chat cues cost long
messages more than they give chats. Order and score are two things: `score` is the row's own evidence (`scoring`),
`order` may lift a row by what stands around it.

Source of the constants: measured, 2026-11-30, on LoCoMo with one configuration for all of: its turns as they are; its
turns without speaker, session and date; the same with both in the text; and joined to messages of 50, 120 and 200
words. Each lies where its neighbours (half and twice) are within .01 of recall@10 on every one of them, and none was
chosen by the conversations that it is reported on (docs/benchmarks.md).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import regex

from loom_common.safe_patterns import SafePattern
from loom_memory.domain.query_cues import QueryCues
from loom_memory.domain.scoring import MATCH, score

POOL_SIZE = 60
"""Rows to take from each leg. Source: as `CUE`; 50 to 200 within .005 of recall@10, and each row costs time."""

SEED_COUNT = 16
"""Best rows whose session neighbours are worth reading. Source: measured on half of LoCoMo, 2026-11-30:
12, 16 and 20 gave recall@10 of .773, .778 and .777."""

WINDOW = 5
"""Turns before and after a row that are its surroundings. Source: as `CUE`; 3 and 8 alike."""

EXCERPT_CHARS = 400
"""Characters of the value that `Candidate.text` needs."""

LEXICAL = 0.55
"""Weight of the words that a row shares with the query; the cosine has the rest.

Source: above. Half each is .003 better on turns, .6 is .006 better on long messages.
"""

CUE = 0.1
"""What one cue adds. Source: above."""

BEFORE = 0.2
"""Share of its evidence that the turn just before lends. Source: above."""

ANSWERED = 0.4
"""Share that it lends beside where it asks and another speaks then: what answers often names nothing of the question.

Source: above. It gives .015 of recall@10 on turns, twice what a second vector of each turn with the end of the one
before it gives, and costs no embedding.
"""

AFTER = 0.1
"""Share that the turn just after lends. Source: above."""

SURROUNDINGS = 0.2
"""Share that the mean of the best `_BEST` turns of the surroundings lends. Source: above."""

SESSION = 0.3
"""Share that the mean of the best `_BEST` turns of the whole session lends. Source: above."""

SHORT_CHARS = 150
"""A turn up to this length borrows fully from its neighbours, ..."""

LONG_CHARS = 400
"""... and from this length on not at all. Source: above."""

MIN_SHOWN = 0.1
"""Score under which a row is noise to a reader, unless something that was found makes it worth a look."""

WORTH_A_LOOK = 0.2
"""Best score of a search from which rows are shown that say little by themselves, marked low.

Source: measured, 2026-11-30. On LoCoMo a third of what such rows hide are answers, which gains .012 of recall@10; of
questions about what nobody said it shows such rows for one in fifteen.
"""

EXACT = 1.0
"""Lifts a row that holds a whole identifier of the query above every row that does not."""

_BEST = 3
_ENDS_SENTENCE = regex.compile(r"(?<=[.!?])\s+")
_TIME_WORDS = (
    r"\b(?:yesterday|today|tonight|tomorrow|ago|last|next|recently|since|years?|months?|weeks?|weekend"
    r"|this (?:past|morning)|\d{4}|\d{1,2}(?:st|nd|rd|th)|january|february|march|april|june|july|august|september"
    r"|october|november|december|monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b"
    r"|昨天|今天|明天|去年|今年|明年|\d[年月日]|昨日|今日|明日|어제|오늘|내일|작년"
)
_TELLS_TIME = regex.compile(_TIME_WORDS, regex.IGNORECASE)
# Most texts tell none, which this says in a tenth of the time; its word boundaries are those of ASCII, which are more.
_MAY_TELL_TIME = SafePattern(_TIME_WORDS, ignore_case=True)


class Candidate(NamedTuple):
    """A row that some leg found, or a session neighbour of one.

    Attributes:
        key: The row's identity; orders ties.
        cosine: Best cosine over the row's chunks; None = not known (no vector leg, no vector, or outside its pool).
        bm25: From the lexical leg; 0 when it did not return the row. Breaks ties.
        share: From the lexical leg, 0 to 1; 0 when it did not return the row.
        exact: From the lexical leg: the row holds a whole identifier of the query.
        speaker: Whose words; may be empty.
        session: What names the session (its user included); empty = none, so the row has no neighbours.
        position: Ordinal of the row in its session by time; None = not known, so the row has no neighbours.
        at: event_time, else created_at.
        chars: Length of the value.
        text: The value, or its first `EXCERPT_CHARS` characters.
    """

    key: tuple[str, ...]
    cosine: float | None = None
    bm25: float = 0.0
    share: float = 0.0
    exact: bool = False
    speaker: str = ""
    session: tuple[str, ...] = ()
    position: int | None = None
    at: datetime | None = None
    chars: int = 0
    text: str = ""


class Found(NamedTuple):
    """What the legs say of a row before it is read; as in `Candidate`."""

    key: tuple[str, ...]
    cosine: float | None
    share: float
    has_session: bool


class Ranked(NamedTuple):
    """A candidate in its place.

    Attributes:
        candidate: The row.
        order: The fused value; only its order within one search means anything.
        score: The shown score, 0 to 1, of the row's own evidence.
        is_low: True when neither the row nor a direct neighbour of it answers the query.
        is_shown: Whether the row is worth showing at all, be it as a low hit.
    """

    candidate: Candidate
    order: float
    score: float
    is_low: bool
    is_shown: bool = True


def seeds(found: Sequence[Found]) -> list[tuple[str, ...]]:
    """Returns the `SEED_COUNT` rows whose session neighbours (`WINDOW` each way) are worth reading, best first.

    By the legs alone, so that rows need not be read for it: chosen with the cues, 12 rows gave .779 where 16 give .778.
    """
    unknown = min((each.cosine for each in found if each.cosine is not None), default=0.0)
    worth = {
        each.key: (unknown if each.cosine is None else each.cosine) + each.share for each in found if each.has_session
    }
    return sorted(worth, key=lambda key: (-worth[key], key))[:SEED_COUNT]


def rank(candidates: Sequence[Candidate], cues: QueryCues, *, noise_floor: float) -> list[Ranked]:
    """Orders candidates, best first; those that are `is_low` keep their place and carry the mark.

    Ties go to the higher BM25, then to the later row, then to the lower key.

    Args:
        candidates: Both pools and the neighbours of the seeds, each key once.
        cues: The cues of the query.
        noise_floor: Cosine under which the embedder's pairs are unrelated.
    """
    asking = [_asking(candidate.text) for candidate in candidates]
    shortness = [_shortness(candidate) for candidate in candidates]
    evidence = _evidence(candidates, cues, [how * share for how, share in zip(asking, shortness, strict=True)])
    scores = [score(candidate.cosine, candidate.share, noise_floor=noise_floor) for candidate in candidates]
    matches = [own >= MATCH for own in scores]
    lent, is_supported = _lent(candidates, evidence, matches, asking)
    # Nobody borrows outside a session.
    borrows = [share if each.session else 0.0 for each, share in zip(candidates, shortness, strict=True)]
    # Centred on the rows that borrow, so that standing in a session is no bonus in itself.
    mean_lent = sum(lent[i] for i, share in enumerate(borrows) if share) / max(1, sum(share > 0 for share in borrows))
    is_worth_a_look = max(scores, default=0.0) >= WORTH_A_LOOK
    ranked = []
    for i, candidate in enumerate(candidates):
        is_low = not (matches[i] or candidate.exact or (is_supported[i] and borrows[i] > 0))
        order = evidence[i] + borrows[i] * (lent[i] - mean_lent) + (EXACT if candidate.exact else 0.0)
        is_shown = scores[i] >= MIN_SHOWN or not is_low or is_worth_a_look
        ranked.append(Ranked(candidate, order, scores[i], is_low, is_shown))
    return sorted(ranked, key=_place)


def _place(hit: Ranked) -> tuple[float, float, float, tuple[str, ...]]:
    at = hit.candidate.at.timestamp() if hit.candidate.at else 0.0
    return -round(hit.order, 6), -hit.candidate.bm25, -at, hit.candidate.key


def _evidence(candidates: Sequence[Candidate], cues: QueryCues, asked: Sequence[float]) -> list[float]:
    """Returns each candidate's own evidence with its cues; what only one leg can know is not held against a row."""
    known = [candidate.cosine for candidate in candidates if candidate.cosine is not None]
    # A row outside the vector pool is no closer than the pool's last.
    unknown = min(known, default=0.0)
    return [
        (1 - LEXICAL) * (unknown if candidate.cosine is None else candidate.cosine)
        + LEXICAL * candidate.share
        + CUE * (_cues(candidate, cues) - how)
        for candidate, how in zip(candidates, asked, strict=True)
    ]


def _cues(candidate: Candidate, cues: QueryCues) -> int:
    """Returns how many cues of the query a row meets."""
    count = int(candidate.speaker in cues.speakers)
    if cues.dates and candidate.at is not None:
        day = candidate.at.date()
        count += any(cue.fits(day) for cue in cues.dates)
    if cues.asks_when and _MAY_TELL_TIME.is_in(candidate.text) and _TELLS_TIME.search(candidate.text):
        count += 1
    return count


def _shortness(candidate: Candidate) -> float:
    """Returns 1 for a one-line text, 0 for a long message."""
    return min(1.0, max(0.0, (LONG_CHARS - candidate.chars) / (LONG_CHARS - SHORT_CHARS)))


def _asking(text: str) -> float:
    """Returns the share of sentences that ask, for a text that ends with a question; else 0."""
    text = text.rstrip()
    if not text.endswith(("?", "？")):
        return 0.0
    sentences: list[str] = _ENDS_SENTENCE.split(text)
    return sum(sentence.endswith(("?", "？")) for sentence in sentences) / len(sentences)


def _lent(
    candidates: Sequence[Candidate], evidence: Sequence[float], matches: Sequence[bool], asking: Sequence[float]
) -> tuple[list[float], list[bool]]:
    """Returns what each candidate's session lends it, and whether a direct neighbour is a match."""
    lent = [0.0] * len(candidates)
    is_supported = [False] * len(candidates)
    sessions: dict[tuple[str, ...], list[int]] = {}
    for i, candidate in enumerate(candidates):
        if candidate.session:
            sessions.setdefault(candidate.session, []).append(i)
    for members in sessions.values():
        of_all = SESSION * _mean_of_best([evidence[i] for i in members])
        at = {position: i for i in members if (position := candidates[i].position) is not None}
        for i in members:
            lent[i] = of_all
        for position, i in at.items():
            lent[i] += _from_neighbours(candidates, evidence, asking, at, position)
            is_supported[i] = any(matches[at[place]] for place in (position - 1, position + 1) if place in at)
    return lent, is_supported


def _from_neighbours(
    candidates: Sequence[Candidate],
    evidence: Sequence[float],
    asking: Sequence[float],
    at: Mapping[int, int],
    position: int,
) -> float:
    """Returns what the turns around a place of a session lend; one that nobody read counts as no evidence."""
    lent = 0.0
    if (before := at.get(position - 1)) is not None:
        asker = candidates[before].speaker
        is_answer = not asker or asker != candidates[at[position]].speaker
        lent += (BEFORE + ANSWERED * asking[before] * is_answer) * evidence[before]
    if (after := at.get(position + 1)) is not None:
        lent += AFTER * evidence[after]
    places = range(position - WINDOW, position + WINDOW + 1)
    return lent + SURROUNDINGS * _mean_of_best([evidence[at[place]] for place in places if place in at])


def _mean_of_best(evidence: list[float]) -> float:
    """Returns the mean of the best `_BEST`; one that is missing counts as no evidence."""
    evidence.sort(reverse=True)
    return sum(each for each in evidence[:_BEST] if each > 0) / _BEST
