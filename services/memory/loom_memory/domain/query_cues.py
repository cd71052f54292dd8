"""Reads what a query says beside its topic: whose words, which dates, whether it asks for a time.

Names and dates are metadata. Known names are taken out of the text that is embedded and matched, and come back as
boosts (`ranking`), because a name in the text pulls every row about that person to the top. Other names stay in the
text, and a second text without them says what is asked of whom they name.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

import regex

from loom_memory.domain.analyzer import STOP_WORDS, analyze_text

TOLD_BEFORE_DAYS = 1
"""Days before a named day on which something about it may have been said (time zones, the evening before)."""

TOLD_AFTER_DAYS = 7
"""Days after a named day within which it is told as news ("last Saturday").

Source: the cue of the retrieval harness, carried over (measured: bench/locomo.py, 2026-11-30).
"""

TOPIC_SHARE = 0.4
"""Share of its topic in the vector of a query that names somebody or something; the whole text has the rest.

Source: measured, 2026-11-30. On LoCoMo's turns without speakers recall@10 is .609 with the text alone, which is that of
BM25, and .664 so; with speakers and dates in the text .713 and .726. In namespaces of facts nothing changes, while half
makes the scores of two of 77 cases of PrecisionMemBench too low.
"""

_MONTH_NAMES = "january february march april may june july august september october november december"
_MONTHS = _MONTH_NAMES.split()
_MONTH_BY_WORD = {
    **{name: index for index, name in enumerate(_MONTHS, 1)},
    **{name[:3]: index for index, name in enumerate(_MONTHS, 1)},
    "sept": 9,
}
# These are English words too, and the abbreviations are too short to trust: alone they need a preposition.
_FULL_MONTHS = frozenset(_MONTHS) - {"may", "march"}
_IN = r"in|of|during|since|until|till|by|before|after|from|early|mid|late|last|next|this"
_MONTH = "|".join(sorted(_MONTH_BY_WORD, key=len, reverse=True))
_YEAR = r"(?:19|20)\d\d"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?+"

_NUMERIC_DATE = regex.compile(
    rf"(?<![\w./-])(?P<year>{_YEAR})[-/.](?P<month>\d{{1,2}})(?:[-/.](?P<day>\d{{1,2}}))?+(?![\w/-]|\.\d)"
    rf"|(?P<year>{_YEAR})\s?年(?:\s?(?P<month>\d{{1,2}})\s?月(?:\s?(?P<day>\d{{1,2}})\s?日)?+)?+"
    rf"|(?P<year>{_YEAR})\s?년(?:\s?(?P<month>\d{{1,2}})\s?월(?:\s?(?P<day>\d{{1,2}})\s?일)?+)?+"
)
_WRITTEN_DATE = regex.compile(
    rf"(?<![\w-])(?:(?P<in>{_IN})[\s-]+(?:the\s+)?)?+(?:(?P<day>{_DAY})\s+(?:of\s+)?)?+(?P<month>{_MONTH})(?![\w-])\.?"
    rf"(?:\s+(?P<day_after>{_DAY})(?![\w:.]))?+(?:,?\s+(?:of\s+)?(?P<year>{_YEAR})(?![\w-]))?+"
)
_BARE_YEAR = regex.compile(rf"(?<![\w-])(?:{_IN}|year|spring|summer|autumn|fall|winter)\s+(?P<year>{_YEAR})(?![\w-])")
_ASKS_WHEN = regex.compile(
    r"\b(?:when|how long|how many (?:days|weeks|months|years)|(?:what|which) (?:year|month|week|date|day|time))\b"
    r"|什么时候|什麼時候|何时|何時|几点|幾點|哪天|哪年|いつ|언제|\bwann\b|\bquand\b|\bcuándo\b"
)
_SPACES = regex.compile(r"\s+")
_POSSESSIVE = regex.compile(r"['’][sS](?!\w)")
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]"
_WORD = regex.compile(rf"[\w--{_UNSPACED}]+", regex.V1)
_STARTS_UNSPACED = regex.compile(_UNSPACED)
_INSIDE_NAME = frozenset("@/\\-_")  # beside one of these a word is a piece of an address or an identifier
_MIN_FIRST_NAME_CHARS = 3
# A capital inside a sentence; not an abbreviation, and not a word of mixed case, which is a thing.
_OTHER_NAME = regex.compile(r"(?<=[\p{L}\p{N},;:)\"'’] )(?P<name>\p{Lu}\p{Ll}{2,})(?:['’][sS])?(?![\w@/\\-]|\.\w)")
_DAYS = frozenset(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"])
# German writes every noun with a capital. These words are its alone among the languages that write names alone so.
_GERMAN = regex.compile(
    r"\b(?:der|das|dem|ein|eine|einen|einem|einer|ist|sind|wird|wurde|wer|wann|wo|wie|welche[mnrs]?|und|oder|nicht|von|vom"
    r"|zum|zur|im|für|mit|bei|beim|auf|wogegen|worüber|wieviel|gibt|haben)\b",
    regex.IGNORECASE,
)

# Words that a topic has at least. Source: chosen; leaning to the one word of "What does Jonas have to learn?" took the
# right answer's score from a match to a low one.
_LEAST_TOPIC: Final = 2


@dataclass(frozen=True, slots=True)
class DateCue:
    """A date named in a query; what is absent is open ("in May" is a month of any year)."""

    year: int | None
    month: int | None = None
    day: int | None = None

    def fits(self, when: date) -> bool:
        """Says whether something told on `when` may be about this date.

        A day is told from `TOLD_BEFORE_DAYS` before until `TOLD_AFTER_DAYS` after it; a month or year only inside it.
        """
        if self.month is None or self.day is None:
            return self.year in (None, when.year) and self.month in (None, when.month)
        years = range(when.year - 1, when.year + 2) if self.year is None else (self.year,)
        return any(_is_told_on(year, self.month, self.day, when) for year in years)


@dataclass(frozen=True, slots=True)
class QueryCues:
    """What a query says beside its topic.

    Attributes:
        text: The query without the known names: what to embed and to analyse. Empty only when the query is.
        speakers: Known speakers whom the query names, spelled as they were given.
        dates: Dates named in the query, in order, each once.
        asks_when: True when the answer is a time ("when", "how long", "which year").
    """

    text: str
    speakers: frozenset[str] = frozenset()
    dates: tuple[DateCue, ...] = ()
    asks_when: bool = False


def read_cues(query: str, speakers: Collection[str] = ()) -> QueryCues:
    """Reads the cues of `query`. Never raises; linear in the length of `query`.

    Args:
        query: The query as asked.
        speakers: Distinct speakers of the rows in scope. An empty name is ignored.
    """
    lowered = query.lower()
    dates = list(_dates(lowered))
    hits = [hit for hit in _names(query, frozenset(speakers)) if not any(_overlaps(hit, span) for span, _ in dates)]
    return QueryCues(
        text=_without(query, hits),
        speakers=frozenset(name for hit in hits for name in hit.speakers),
        dates=tuple(dict.fromkeys(cue for _, cue in dates)),
        asks_when=_ASKS_WHEN.search(lowered) is not None,
    )


def topic_of(text: str) -> str:
    """Returns what a query asks of whom it names: the text without the names in it, to be embedded beside it.

    A name pulls every row that holds it to the top, whatever it says; between the text and its topic both count. Empty
    where the text has no name, or little else: one word finds whatever holds it. Never raises; linear in the length of
    `text`.
    """
    if _GERMAN.search(text):
        return ""
    topic = _OTHER_NAME.sub(lambda hit: hit[0] if _is_calendar(hit["name"]) else " ", text)
    topic = _SPACES.sub(" ", topic).strip()
    return topic if topic != text and analyze_text(topic).dl >= _LEAST_TOPIC else ""


def _is_told_on(year: int, month: int, day: int, when: date) -> bool:
    try:
        named = date(year, month, day)
    except ValueError:  # 30 February, or 29 February of another year
        return False
    return -timedelta(days=TOLD_BEFORE_DAYS) <= when - named <= timedelta(days=TOLD_AFTER_DAYS)


class _NameHit(NamedTuple):
    start: int
    end: int
    speakers: frozenset[str]


@dataclass(frozen=True, slots=True)
class _NameIndex:
    """Known names by their casefolded words, and those of scripts without spaces as they are written."""

    by_words: dict[tuple[str, ...], frozenset[str]]
    unspaced: tuple[str, ...]
    longest: int


@lru_cache(maxsize=64)
def _name_index(speakers: frozenset[str]) -> _NameIndex:
    """Indexes each way to write a name: whole, or its first word alone."""
    found: dict[tuple[str, ...], set[str]] = {}
    unspaced = []
    for speaker in speakers:
        if _STARTS_UNSPACED.match(speaker):
            unspaced.append(speaker)
            continue
        words = tuple(_WORD.findall(speaker.casefold()))
        if words:
            found.setdefault(words, set()).add(speaker)
            if len(words[0]) >= _MIN_FIRST_NAME_CHARS:
                found.setdefault(words[:1], set()).add(speaker)
    names = {words: frozenset(meant) for words, meant in found.items()}
    return _NameIndex(names, tuple(sorted(unspaced, key=len, reverse=True)), max(map(len, names), default=0))


def _names(query: str, speakers: frozenset[str]) -> list[_NameHit]:
    """Finds the known names in a query, left to right, the longest at each place, without overlap."""
    index = _name_index(speakers)
    hits = [
        _NameHit(start, start + len(name), frozenset({name}))
        for name in index.unspaced
        if (start := query.find(name)) >= 0
    ]
    if index.by_words:
        hits.extend(_spaced_names(query, index))
    kept: list[_NameHit] = []
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if not kept or hit.start >= kept[-1].end:
            kept.append(hit)
    return kept


def _spaced_names(query: str, index: _NameIndex) -> Iterator[_NameHit]:
    words = [(match.start(), match.end(), match[0].casefold()) for match in _WORD.finditer(query)]
    for first in range(len(words)):
        for count in range(min(index.longest, len(words) - first), 0, -1):
            window = words[first : first + count]
            meant = index.by_words.get(tuple(word for _, _, word in window))
            start, end = window[0][0], window[-1][1]
            if meant is not None and _is_name(query, start, end):
                possessive = _POSSESSIVE.match(query, end)
                yield _NameHit(start, possessive.end() if possessive else end, meant)
                break


def _is_name(query: str, start: int, end: int) -> bool:
    """Says whether a match is a name: no piece of an address, and `Will` or `May` only with a capital in a sentence."""
    before, after = query[:start][-1:], query[end : end + 1]
    if before in _INSIDE_NAME or after in _INSIDE_NAME or (after == "." and query[end + 1 : end + 2].isalnum()):
        return False
    if (word := query[start:end].casefold()) not in STOP_WORDS and word not in _MONTH_BY_WORD:
        return True
    lead = query[max(0, start - 8) : start].rstrip()
    return query[start].isupper() and bool(lead) and lead[-1] not in ".?!"


def _overlaps(hit: _NameHit, span: tuple[int, int]) -> bool:
    return hit.start < span[1] and span[0] < hit.end


def _without(query: str, hits: list[_NameHit]) -> str:
    """Returns the query without the names; with them when only function words would be left."""
    kept, end = [], 0
    for hit in hits:
        kept.append(query[end : hit.start])
        end = hit.end
    text = _SPACES.sub(" ", " ".join([*kept, query[end:]])).strip()
    return text if analyze_text(text).dl > 0 else query.strip()


def _is_calendar(word: str) -> bool:
    return word.casefold() in _MONTH_BY_WORD or word.casefold() in _DAYS


def _dates(query: str) -> Iterator[tuple[tuple[int, int], DateCue]]:
    """Yields the dates named in a lower-case query with where they stand."""
    for match in _NUMERIC_DATE.finditer(query):
        cue = _cue(match["year"], match["month"], match["day"])
        if cue is not None:
            yield match.span(), cue
    for match in _WRITTEN_DATE.finditer(query):
        day = match["day"] or match["day_after"]
        if day is None and match["year"] is None and match["month"] not in _FULL_MONTHS and match["in"] is None:
            continue
        cue = _cue(match["year"], str(_MONTH_BY_WORD[match["month"]]), day)
        if cue is not None:
            yield match.span(), cue
    for match in _BARE_YEAR.finditer(query):
        yield match.span(), DateCue(int(match["year"]))


def _cue(year: str | None, month: str | None, day: str | None) -> DateCue | None:
    """Builds a cue, or nothing when the numbers are no date."""
    month_number = int(month) if month else None
    day_number = int(day.rstrip("stndrh")) if day else None
    if not 1 <= (month_number or 1) <= 12 or not 1 <= (day_number or 1) <= 31:
        return None
    return DateCue(int(year) if year else None, month_number, day_number)
