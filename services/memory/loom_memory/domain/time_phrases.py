"""Times that a question names, as stretches of days: "last week", "in May 2023", "since March", "il y a trois jours".

The phrases are found here and read by dateparser, which knows the words of each language; its answer says whether a
day, a week, a month or a year was meant, and that whole one is the stretch. Days are days of UTC. Importing dateparser
takes .15 s and the first phrase of a language a tenth of a second more (measured 2026-11-30), so that it is imported
when the first phrase is found and never before.
"""

import functools
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import regex

from loom_memory.domain.narrowing import Span

if TYPE_CHECKING:
    from dateparser.date import DateDataParser

MAX_PHRASES: Final = 4
"""Most phrases of one question that are read. Source: chosen; a question names one or two."""

_MAX_CHARS: Final = 2_000
"""Characters of a question that are looked at: pasted text is no question about a time."""

_N: Final = r"(?:\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|twelve|a few|a couple of)"
_UNIT: Final = r"(?:day|week|month|year)s?"
_WEEKDAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_EN_MONTH: Final = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\.?"
)
_YEAR: Final = r"(?:19|20)\d\d"
_ORDINAL: Final = r"\d{1,2}(?:st|nd|rd|th)?"

_LATIN: Final[tuple[tuple[str, str], ...]] = (
    (
        "en",
        rf"day before yesterday|yesterday|today|tonight|tomorrow|{_N} {_UNIT} ago"
        rf"|(?:last|past|this|next) (?:week|month|year|weekend|{_WEEKDAY})"
        rf"|{_ORDINAL} (?:of )?{_EN_MONTH}(?:,? {_YEAR})?|{_EN_MONTH} {_ORDINAL}(?:,? {_YEAR})?|{_EN_MONTH},? {_YEAR}"
        rf"|(?<=\b(?:in|during|since|until|before|after|last|this) ){_EN_MONTH}(?! \d)",
    ),
    (
        "de",
        r"vorgestern|gestern|heute|übermorgen|vor (?:\d{1,3}|eine[mr]|zwei|drei|vier|fünf|sechs) "
        r"(?:tag|woche|monat|jahr)e?n?|(?:letzte|vorige|diese|nächste)[nrms]? "
        r"(?:woche|monat|jahr|(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch)"
        rf"|(?:januar|februar|märz|april|juni|juli|august|september|oktober|november|dezember|mai) {_YEAR}"
        rf"|\d{{1,2}}\. (?:januar|februar|märz|april|mai|juni|juli|august|september|oktober|november|dezember)"
        rf"(?: {_YEAR})?",
    ),
    (
        "fr",
        r"avant-hier|hier|aujourd['’]hui|demain|il y a (?:\d{1,3}|une?|deux|trois|quatre|cinq|six) "
        r"(?:jour|semaine|mois|an|année)s?|(?:la semaine|le mois|l['’]année|l['’]an) (?:derni[eè]re?|passée?)"
        r"|(?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche) dernier"
        rf"|(?:\d{{1,2}} )?(?:janvier|février|mars|avril|mai|juin|juillet|août|septembre|octobre|novembre|décembre)"
        rf" {_YEAR}",
    ),
    (
        "es",
        r"anteayer|ayer|hoy|mañana|hace (?:\d{1,3}|una?|dos|tres|cuatro|cinco|seis) (?:día|semana|mes|año)e?s?"
        r"|(?:la semana|el mes|el año) (?:pasad[oa]|próxim[oa])"
        r"|el (?:lunes|martes|miércoles|jueves|viernes|sábado|domingo) pasado"
        rf"|(?:\d{{1,2}} de )?(?:enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre"
        rf"|diciembre)(?: de)? {_YEAR}",
    ),
    (
        "it",
        r"l['’]altro ieri|ieri|oggi|domani|(?:\d{1,3}) (?:giorni|settimane|mesi|anni) fa"
        r"|(?:la settimana|il mese|l['’]anno) scors[oa]"
        rf"|(?:gennaio|febbraio|marzo|aprile|maggio|giugno|luglio|agosto|settembre|ottobre|novembre|dicembre) {_YEAR}",
    ),
    (
        "pt",
        r"anteontem|ontem|hoje|amanhã|há (?:\d{1,3}) (?:dias|semanas|meses|anos)"
        r"|(?:semana|mês|ano) passad[oa]",
    ),
    (
        "nl",
        r"eergisteren|gisteren|vandaag|\d{1,3} (?:dagen|weken|maanden|jaren) geleden|vorige (?:week|maand)|vorig jaar",
    ),
    (
        "ru",
        r"позавчера|вчера|сегодня|завтра|на прошлой неделе|в прошлом (?:месяце|году)"
        r"|\d{1,3} (?:день|дня|дней|недел[юи]|недель|месяц(?:а|ев)?|года?|лет) назад",
    ),
)
_UNSPACED: Final[tuple[tuple[str, str], ...]] = (
    ("zh", r"前天|昨天|今天|明天|上周|上個月|上个月|去年|今年|\d{1,3}\s?(?:天|周|个月|個月|年)前"),
    ("ja", r"一昨日|昨日|今日|明日|先週|先月|去年|昨年|\d{1,3}\s?(?:日|週間|[かヶ]月|年)前"),
    ("ko", r"그저께|어제|오늘|내일|지난\s?주|지난\s?달|작년|올해|\d{1,3}\s?(?:일|주|개월|년)\s?전"),
)
# Forms that name the same in every language, and stretches that reach back from now.
_DAY_FORM: Final = rf"{_YEAR}[-/.]\d{{1,2}}[-/.]\d{{1,2}}"
_MONTH_FORM: Final = rf"{_YEAR}[-/]\d{{1,2}}"
_BACK: Final = regex.compile(
    rf"(?:in |over |during |within )?(?:the )?(?:last|past) (?P<count>\d{{1,3}}|few|couple of) (?P<unit>{_UNIT})",
    regex.IGNORECASE,
)
_FEW: Final = 3
_DAYS: Final = {"day": 1, "week": 7, "month": 30, "year": 365}

_PHRASE: Final = regex.compile(
    "|".join(
        [
            rf"(?P<day>(?<![\w/.-]){_DAY_FORM}(?![\w/-]))",
            rf"(?P<month>(?<![\w/.-]){_MONTH_FORM}(?![\w/.-]))",
            rf"(?P<year>(?<=\b(?:in|during|of|since|until|before|after|year|en|im|seit|vor|depuis|desde|nel|em|в) )"
            rf"{_YEAR}(?![\w/.-]))",
            *(rf"(?P<{language}>\b(?:{words})\b)" for language, words in _LATIN),
            *(rf"(?P<{language}>{words})" for language, words in _UNSPACED),
        ]
    ),
    regex.IGNORECASE,
)
# One of these stands in every phrase: looking for pieces takes a hundredth of looking for phrases.
_PIECES: Final = (
    *"0123456789天周月年日今昨明去",
    *("yesterday", "today", "tonight", "tomorrow", " ago", "last ", "past ", "this ", "next "),
    *("januar", "februar", "march", "april", "may", "jun", "jul", "august", "septem", "octob", "novem", "decem"),
    *("jan", "feb", "mar", "apr", "aug", "sep", "oct", "nov", "dec", "märz", "okto", "dezem"),
    *("gestern", "heute", "morgen", "vor ", "letzte", "vorige", "diese", "nächste"),
    *("hier", "aujourd", "demain", "il y a ", "dernier", "dernière", "derniere", "passée"),
    *("ayer", "hoy", "mañana", "hace ", "pasad", "próxim", "ieri", "oggi", "domani", " fa", "scors"),
    *("ontem", "hoje", "amanhã", "há ", "passad", "gisteren", "vandaag", "geleden", "vorig"),
    *(
        "вчера",
        "сегодня",
        "завтра",
        "прошл",
        "назад",
        "先週",
        "先月",
        "어제",
        "오늘",
        "내일",
        "지난",
        "작년",
        "올해",
        "그저께",
    ),
)
_SINCE: Final = regex.compile(
    r"\b(?:since|after|from|seit|nach|ab|depuis|après|desde|dal|с|после)(?: the)? $", regex.IGNORECASE
)
_UNTIL: Final = regex.compile(
    r"\b(?:until|till|before|by|bis|avant|jusqu['’]en|hasta|antes de|до)(?: the)? $", regex.IGNORECASE
)
_STARTS_BEHIND: Final = regex.compile(r"\b(?:after|nach|après|после)(?: the)? $", regex.IGNORECASE)
_ENDS_WITH: Final = regex.compile(r"\b(?:until|till|by|bis|jusqu['’]en|hasta)(?: the)? $", regex.IGNORECASE)
_BETWEEN: Final = regex.compile(r"\b(?:between|from|zwischen|von|entre|de|du|tra)(?: the)? $", regex.IGNORECASE)
_AND: Final = regex.compile(r"^\s*(?:and|to|until|till|through|-|–|und|bis|et|à|au|y|a|e)\s*$", regex.IGNORECASE)
_WEEKEND: Final = regex.compile(r"^(last|past|this|next) weekend$", regex.IGNORECASE)


class TimePhrase(NamedTuple):
    """A time that a question names: where the words stand, and the stretch they mean."""

    start: int
    end: int
    span: Span


class _Read(NamedTuple):
    start: int
    end: int
    first: date
    behind: date
    """The first day behind it."""


def names_a_time(query: str) -> bool:
    """Says whether a question may name a time; cheap, so that others never wait for dateparser."""
    text = query[:_MAX_CHARS]
    lowered = text.lower()
    if not any(piece in lowered for piece in _PIECES):
        return False
    return _PHRASE.search(text) is not None or _BACK.search(text) is not None


@functools.lru_cache(maxsize=1_024)
def times_named(query: str, today: date) -> tuple[TimePhrase, ...]:
    """Returns the times that a question names, in its order; what cannot be read is left out. Never raises.

    Args:
        query: The question; its first 2,000 characters count.
        today: The day, in UTC, that words such as "yesterday" are counted from.
    """
    text = query[:_MAX_CHARS]
    found = [*_back(text, today), *_read(text, today)]
    phrases: list[TimePhrase] = []
    reads = _apart(found)
    place = 0
    while place < len(reads):
        read = reads[place]
        follower = reads[place + 1] if place + 1 < len(reads) else None
        if follower and _BETWEEN.search(text[: read.start]) and _AND.match(text[read.end : follower.start]):
            first, behind = min(read.first, follower.first), max(read.behind, follower.behind)
            phrases.append(TimePhrase(read.start, follower.end, Span(_midnight(first), _midnight(behind))))
            place += 2
            continue
        phrases.append(TimePhrase(read.start, read.end, _span(text[: read.start], read)))
        place += 1
    return tuple(phrases)


def without_times(query: str, phrases: tuple[TimePhrase, ...]) -> str:
    """Returns the question without the words that name its times."""
    kept, end = [], 0
    for phrase in phrases:
        kept.append(query[end : phrase.start])
        end = phrase.end
    return " ".join(" ".join([*kept, query[end:]]).split())


def _span(before: str, read: _Read) -> Span:
    """Returns the stretch that a time means after the words before it."""
    if _SINCE.search(before):
        return Span(since=_midnight(read.behind if _STARTS_BEHIND.search(before) else read.first))
    if _UNTIL.search(before):
        return Span(until=_midnight(read.behind if _ENDS_WITH.search(before) else read.first))
    return Span(_midnight(read.first), _midnight(read.behind))


def _apart(found: list[_Read]) -> list[_Read]:
    kept: list[_Read] = []
    for read in sorted(found, key=lambda read: (read.start, -read.end)):
        if not kept or read.start >= kept[-1].end:
            kept.append(read)
    return kept[:MAX_PHRASES]


def _back(text: str, today: date) -> Iterator[_Read]:
    for match in _BACK.finditer(text):
        count = int(match["count"]) if match["count"].isdigit() else _FEW
        days = count * _DAYS[match["unit"].lower().rstrip("s")]
        yield _Read(match.start(), match.end(), today - timedelta(days=days), today + timedelta(days=1))


def _read(text: str, today: date) -> Iterator[_Read]:
    for count, match in enumerate(_PHRASE.finditer(text)):
        if count >= MAX_PHRASES * 2:
            return
        kind = match.lastgroup or ""
        stretch = _stretch(kind, match[0], today)
        if stretch is not None:
            yield _Read(match.start(), match.end(), *stretch)


def _stretch(kind: str, phrase: str, today: date) -> tuple[date, date] | None:
    """Returns the first day of what a phrase means, and the first day behind it."""
    if weekend := _WEEKEND.match(phrase):
        return _weekend(weekend[1].lower(), today)
    if kind in ("day", "month", "year"):
        return _numbered(phrase)
    language = kind
    read = _parser(language, today).get_date_data(phrase)
    if read.date_obj is None:
        return None
    return _whole(read.date_obj.date(), str(read.period))


def _numbered(phrase: str) -> tuple[date, date] | None:
    numbers = [int(part) for part in regex.split(r"[-/.]", phrase)]
    try:
        match numbers:
            case [year]:
                return _whole(date(year, 1, 1), "year")
            case [year, month]:
                return _whole(date(year, month, 1), "month")
            case [year, month, day]:
                return _whole(date(year, month, day), "day")
    except ValueError:
        return None
    return None


def _whole(day: date, period: str) -> tuple[date, date] | None:
    """Returns the whole day, week, month or year around a day."""
    try:
        if period == "week":
            first = day - timedelta(days=day.weekday())
            return first, first + timedelta(days=7)
        if period == "month":
            first = day.replace(day=1)
            return first, (first + timedelta(days=31)).replace(day=1)
        if period == "year":
            return date(day.year, 1, 1), date(day.year + 1, 1, 1)
        return day, day + timedelta(days=1)
    except (ValueError, OverflowError):
        return None


def _weekend(which: str, today: date) -> tuple[date, date]:
    saturday = today + timedelta(days=5 - today.weekday())
    if which in ("last", "past"):
        saturday -= timedelta(days=7)
    if which == "next":
        saturday += timedelta(days=7)
    return saturday, saturday + timedelta(days=2)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


@functools.lru_cache(maxsize=64)
def _parser(language: str, today: date) -> "DateDataParser":
    from dateparser.date import DateDataParser  # here: most questions name no time, and it takes a while

    settings = {
        "RELATIVE_BASE": datetime.combine(today, time(12)),
        # "In May" and "on Friday" of a question about memories are the last ones.
        "PREFER_DATES_FROM": "past",
        "PREFER_DAY_OF_MONTH": "first",
        "RETURN_AS_TIMEZONE_AWARE": False,
        "TIMEZONE": "UTC",
    }
    return DateDataParser(languages=[language], settings=settings)
