"""Answers that are read off the memories: counts, lists, dates, the latest value, and their own words.

Each says nothing that a memory does not say, and cites what it rests on. Where the memories do not settle the question
there is no answer, so that somebody else may try.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import regex

from loom_common.citations import MemoryCitation
from loom_memory.domain.analyzer import analyze_text
from loom_memory.domain.intents import Intent, intent_of
from loom_memory.domain.memory import Hit, Memory
from loom_memory.domain.relative_times import find_words

MOST_LISTED: Final = 30
"""Most memories that a list names."""

_MOST_WORDS: Final = 3
_EXCERPT_CHARS: Final = 400
# What is read of each memory, so that an answer from many long ones does not hold up the process. Source: chosen; a
# fact is a tenth as long, and of a long text the sentences are looked at of three memories alone.
_READ_CHARS: Final = 4_000
_LONGEST_CHARS: Final = 20_000
# Hits that score less than this share of the best are about something else more often than not. Source: chosen.
_NEAR_BEST: Final = 0.75
_EXTRACT_SHARE: Final = 0.6

_DATE: Final = regex.compile(
    r"^\W*(?:when|since when|until when|(?:on |in )?(?:what|which) (?:date|day|month|year)|what time"
    r"|wann|seit wann|quand|cu[áa]ndo|quando)\b|什么时候|いつ|언제",
    regex.IGNORECASE,
)
_HOW_MANY: Final = regex.compile(r"\bhow many\s+((?:[\p{L}'-]+\s+){0,2}[\p{L}'-]+)", regex.IGNORECASE)
_VERBS: Final = frozenset(
    """
    do does did are is was were has have had can could will would should there i you we they he she it of in on at
    """.split()  # noqa: SIM905  (read as a line)
)
_TIMES: Final = frozenset(("times", "time", "often"))
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_COUNT_WORDS: Final = tuple(
    """
    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty
    """.split()  # noqa: SIM905  (read as a line)
)
# The whole number: neither the "one" of "twenty-one" nor the 500 of 1,500, and no version, date or range.
_NUMBER: Final = regex.compile(
    r"(?<![\p{L}\p{N}.,:/$€£#-])"
    rf"(\d{{1,9}}(?:,\d{{3}})*|(?:(?:{'|'.join(_TENS)})[- ])?(?:{'|'.join(_COUNT_WORDS)})|{'|'.join(_TENS)})"
    r"(?![\p{L}\p{N}-]|[.,:/]\d)",
    regex.IGNORECASE,
)
_YEAR: Final = regex.compile(r"(?:19|20)\d\d")
# What stands between a number and what it counts; behind such a word, or a comma, it counts something else.
_JOINS: Final = frozenset(
    """
    and or but of for to from in on at by with without than per nor as that who which is are was were has have had the
    """.split()  # noqa: SIM905  (read as a line)
)
_NEXT_WORDS: Final = regex.compile(r"(?:\s+[\p{L}\p{N}'-]+){1,3}")
_WORD: Final = regex.compile(r"[\p{L}\p{N}'-]+")
_NAME: Final = regex.compile(r"(?<![.!?]\s)(?<!^)\b\p{Lu}[\p{L}\p{N}'-]+")
_SENTENCE: Final = regex.compile(r"(?<=[.!?。!?])\s+|\n+")
# Where every noun is written large, a large letter says nothing of names.
_ENGLISH: Final = regex.compile(
    r"^\W*(?:what|who|whom|whose|when|where|which|how|why|is|are|was|were|do|does|did|has|have|had|can|could|list|tell"
    r"|name|show|since)\b",
    regex.IGNORECASE,
)
_NO_NAMES: Final = frozenset(
    """
    I I'm I've Monday Tuesday Wednesday Thursday Friday Saturday Sunday
    """.split()  # noqa: SIM905  (read as a line)
)


class Route(StrEnum):
    """How a question is answered."""

    COUNT = "count"
    LIST = "list"
    DATE = "date"
    LATEST = "latest"
    SYNTHESIS = "synthesis"
    EXTRACTIVE = "extractive"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer and what it cites."""

    text: str
    cited: tuple[Hit, ...]
    route: Route


def route_of(question: str) -> Route | None:
    """Returns the way that a question's words ask for; None for a question that is open."""
    if _DATE.search(question):
        return Route.DATE
    match intent_of(question):
        case Intent.COUNT:
            return Route.COUNT
        case Intent.LIST:
            return Route.LIST
        case Intent.LATEST:
            return Route.LATEST
        case _:
            return None


def citation_of(memory: Memory) -> MemoryCitation:
    """Returns the citation of a memory in the version that was recalled."""
    return MemoryCitation(memory.identity.key, memory.revision)


def supported(question: str, hits: Sequence[Hit]) -> list[Hit]:
    """Returns the hits that may answer: none that is low, and of those about others than whom it names none."""
    good = [hit for hit in hits if not hit.low]
    names = [name for name in _NAME.findall(question) if name not in _NO_NAMES] if _ENGLISH.search(question) else []
    for name in names:
        good = [hit for hit in good if _names(hit.memory, name)]
    return good


def read_off(
    question: str, hits: Sequence[Hit], *, verbs: Sequence[str] = (), all_recalled: bool = True
) -> Answer | None:
    """Returns the answer that the memories themselves give, or None where they settle nothing.

    Args:
        question: What is asked.
        hits: What was recalled, best first.
        verbs: Words that mean the same as the question's verb, for a count of what happened.
        all_recalled: Whether nothing that may answer was left behind the hits: else what is counted is the least.
    """
    good = supported(question, hits)
    if not good:
        return None
    match route_of(question):
        case Route.COUNT:
            return _count(question, good, verbs, all_recalled=all_recalled)
        case Route.LIST:
            return _listing(good)
        case Route.DATE:
            return _date(good)
        case Route.LATEST:
            return _latest(good)
        case _:
            return None


def extract(question: str, hits: Sequence[Hit]) -> Answer | None:
    """Returns what the best memories say in their own words; None where none is about the question."""
    good = supported(question, hits)
    if not good:
        return None
    near = [hit for hit in good if hit.score >= _EXTRACT_SHARE * good[0].score][:_MOST_WORDS]
    asked = frozenset(analyze_text(question).term_ids)
    lines = [f"{_best_words(hit.memory.content.value, asked)} {citation_of(hit.memory)}" for hit in near]
    return Answer("\n".join(lines), tuple(near), Route.EXTRACTIVE)


def told_at(memory: Memory) -> datetime:
    """Returns when what a memory tells happened, or else when it was written."""
    return memory.content.event_time or memory.updated_at


def _count(question: str, hits: Sequence[Hit], verbs: Sequence[str], *, all_recalled: bool) -> Answer | None:
    noun = _counted(question)
    if not noun:
        return None
    if noun not in _TIMES:
        stated = [hit for hit in hits if _stated_number(hit.memory.content.value, noun)]
        if stated:
            newest = max(stated, key=lambda hit: told_at(hit.memory))
            number = _stated_number(newest.memory.content.value, noun)
            text = f"{number}: {_one_line(newest.memory)} {citation_of(newest.memory)}"
            return Answer(text, (newest,), Route.COUNT)
        wanted = [frozenset(analyze_text(noun).term_ids)]
    else:
        wanted = [frozenset(analyze_text(word).term_ids) for word in (*_last_words(question), *verbs)]
    counted = [hit for hit in hits if _holds(hit.memory, wanted)]
    if not counted:
        return None
    lines = "\n".join(_line(hit.memory) for hit in counted[:MOST_LISTED])
    what = "memory says" if len(counted) == 1 else "memories say"
    number = str(len(counted)) if all_recalled else f"At least {len(counted)}"
    return Answer(f"{number}, as {len(counted)} {what}:\n{lines}", tuple(counted), Route.COUNT)


def _listing(hits: Sequence[Hit]) -> Answer | None:
    near = [hit for hit in hits if hit.score >= _EXTRACT_SHARE * hits[0].score][:MOST_LISTED]
    if len(near) < 2:
        return None
    return Answer("\n".join(_line(hit.memory) for hit in near), tuple(near), Route.LIST)


def _date(hits: Sequence[Hit]) -> Answer | None:
    near = [hit for hit in hits if hit.score >= _NEAR_BEST * hits[0].score]
    for hit in near:
        content = hit.memory.content
        found = find_words(content.value[:_READ_CHARS], content.event_time or hit.memory.created_at)
        moment = found[1] if found is not None else content.event_time
        if moment is not None:
            text = f"{moment.astimezone(UTC).date().isoformat()}: {_one_line(hit.memory)} {citation_of(hit.memory)}"
            return Answer(text, (hit,), Route.DATE)
    return None


def _latest(hits: Sequence[Hit]) -> Answer:
    near = [hit for hit in hits if hit.score >= _NEAR_BEST * hits[0].score and hit.memory.invalid_at is None]
    newest = max(near or [hits[0]], key=lambda hit: (told_at(hit.memory), hit.score))
    day = told_at(newest.memory).astimezone(UTC).date().isoformat()
    text = f"{_one_line(newest.memory)} (as of {day}) {citation_of(newest.memory)}"
    return Answer(text, (newest,), Route.LATEST)


def _counted(question: str) -> str:
    """Returns the word for what is counted; empty where the question does not name it."""
    if regex.search(r"\bhow often\b", question, regex.IGNORECASE):
        return "often"
    found = _HOW_MANY.search(question)
    words: list[str] = []
    for word in found[1].split() if found else ():
        if word.lower() in _VERBS:
            break
        words.append(word)
    return words[-1].lower() if words else ""


def _last_words(question: str) -> list[str]:
    """Returns the words of a question that say what happened: all that are no function words and no names."""
    words = [word for word in _WORD.findall(question) if word[0].islower()]
    skipped = _VERBS | _TIMES | {"how", "many", "often", "the", "a", "an", "to", "my", "his", "her", "their", "go"}
    return [word for word in words if word.lower() not in skipped]


def _holds(memory: Memory, wanted: Sequence[frozenset[int]]) -> bool:
    """Says whether the beginning of a memory's text holds any of these words."""
    held = frozenset(analyze_text(memory.content.value[:_READ_CHARS]).term_ids)
    return any(terms and terms <= held for terms in wanted)


def _stated_number(text: str, noun: str) -> str:
    """Returns the number that a text gives right before what is counted; empty where it gives none."""
    text = text[:_READ_CHARS]
    wanted = frozenset(analyze_text(noun).term_ids)
    for found in _NUMBER.finditer(text):
        behind = _NEXT_WORDS.match(text[found.end() : found.end() + 60])
        if behind is None or _YEAR.fullmatch(found[1]):
            continue
        words = list(itertools.takewhile(lambda word: word.lower() not in _JOINS, behind[0].split()))
        if any(wanted and wanted <= frozenset(analyze_text(word).term_ids) for word in words):
            return str(found[1])
    return ""


def _names(memory: Memory, name: str) -> bool:
    content = memory.content
    held = " ".join((content.value, content.speaker, content.agent, memory.identity.user_id, *content.tags))
    bare = name.casefold().removesuffix("'s").rstrip("'")
    return bare in held.casefold() or bare in memory.identity.key.casefold()


def _best_words(value: str, asked: frozenset[int]) -> str:
    """Returns a short value whole, and of a long one the sentences that say most of what was asked, in their order."""
    if len(value) <= _EXCERPT_CHARS:
        return " ".join(value.split())
    sentences = [sentence.strip() for sentence in _SENTENCE.split(value[:_LONGEST_CHARS]) if sentence.strip()]
    weighed = sorted(
        range(len(sentences)),
        key=lambda place: (-len(asked & frozenset(analyze_text(sentences[place]).term_ids)), place),
    )
    kept: list[int] = []
    for place in weighed:
        if kept and sum(len(sentences[one]) for one in kept) + len(sentences[place]) > _EXCERPT_CHARS:
            break
        kept.append(place)
    return " ".join(" ".join(sentences[place][:_EXCERPT_CHARS].split()) for place in sorted(kept))


def _one_line(memory: Memory) -> str:
    text = " ".join(memory.content.value.split())
    return text if len(text) <= _EXCERPT_CHARS else f"{text[: _EXCERPT_CHARS - 1]}…"


def _line(memory: Memory) -> str:
    return f"- {_one_line(memory)} {citation_of(memory)}"
