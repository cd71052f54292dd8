"""Times in words, as a message says them, resolved against the moment at which it was said.

Only what has one meaning is resolved; for the rest there is no time, rather than a wrong one.
"""

import calendar
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

_NUMBERS: Final = {
    word: number
    for number, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
} | {"a": 1, "an": 1, "couple": 2, "few": 3}
_MONTHS: Final = {name.lower(): number for number, name in enumerate(calendar.month_name) if name} | {
    name.lower(): number for number, name in enumerate(calendar.month_abbr) if name
} | {"sept": 9}  # fmt: skip
_DAYS: Final = {name.lower(): number for number, name in enumerate(calendar.day_name)}

_MONTH: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAY: Final = "|".join(_DAYS)
_COUNT: Final = r"\d{1,3}|a few|a couple of|" + "|".join(word for word in _NUMBERS if len(word) > 1) + "|a"
_UNIT: Final = r"day|week|month|year|hour|minute"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{text})(?![\w-])", re.IGNORECASE)


def resolve_words(words: str, said_at: datetime) -> datetime | None:
    """Returns the beginning of the time that `words` name, seen from when they were said; None where they name none.

    A day is its first moment in UTC, a month and a year their first day, `last week` the Monday of the week before.
    """
    found = find_words(words, said_at)
    return None if found is None else found[1]


def find_words(text: str, said_at: datetime) -> tuple[str, datetime] | None:
    """Returns the first words of a text that name a time, and that time; None where there are none."""
    best: tuple[int, int, str, datetime] | None = None
    for pattern, meaning in _MEANINGS:
        for found in pattern.finditer(text):
            try:
                moment = meaning(found, said_at)
            except (ValueError, OverflowError):
                continue
            if moment is not None and (best is None or (found.start(), -len(found[0])) < best[:2]):
                best = found.start(), -len(found[0]), found[0], moment
            break
    return None if best is None else best[2:]


def anchored(text: str, said_at: datetime) -> str:
    """Returns the text with the date behind the words that only mean one while it is known when they were said."""
    found = find_words(text, said_at)
    if found is None or not _RELATIVE.search(found[0]):
        return text
    words, moment = found
    shown = moment.date().isoformat()
    return text if shown in text else text.replace(words, f"{words} ({shown})", 1)


def _day(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _count(text: str) -> int:
    word = text.lower().removeprefix("a ").removesuffix(" of").strip() or "a"
    return int(word) if word.isdecimal() else _NUMBERS[word]


def _shifted(said_at: datetime, count: int, unit: str) -> datetime:
    match unit.lower():
        case "minute":
            return said_at + timedelta(minutes=count)
        case "hour":
            return said_at + timedelta(hours=count)
        case "day":
            return _day(said_at) + timedelta(days=count)
        case "week":
            return _day(said_at) + timedelta(weeks=count)
        case "month":
            return _months(_day(said_at), count)
        case _:
            return _months(_day(said_at), 12 * count)


def _months(moment: datetime, count: int) -> datetime:
    month = moment.year * 12 + moment.month - 1 + count
    year, month = divmod(month, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last))


def _of_unit(direction: str, unit: str, said_at: datetime) -> datetime:
    step = {"last": -1, "previous": -1, "past": -1, "this": 0, "next": 1, "coming": 1}[direction.lower()]
    today = _day(said_at)
    match unit.lower():
        case "week":
            return today - timedelta(days=today.weekday()) + timedelta(weeks=step)
        case "weekend":
            return today - timedelta(days=today.weekday()) + timedelta(weeks=step, days=5)
        case "month":
            return _months(today.replace(day=1), step)
        case "year":
            return today.replace(year=today.year + step, month=1, day=1)
        case _:
            return today + timedelta(days=step)


def _weekday(direction: str, name: str, said_at: datetime) -> datetime:
    """Returns the nearest such day behind or before the one on which it was said; that day itself never counts."""
    today, wanted = _day(said_at), _DAYS[name.lower()]
    if direction.lower() in ("next", "coming", "this"):
        ahead = (wanted - today.weekday()) % 7 or 7
        return today + timedelta(days=ahead)
    back = (today.weekday() - wanted) % 7 or 7
    return today - timedelta(days=back)


def _date(year: str | None, month: str, day: str | None, said_at: datetime) -> datetime:
    number = _MONTHS[month.lower().rstrip(".")]
    if year:
        return datetime(int(year), number, int(day or 1), tzinfo=UTC)
    # Without a year the nearest one before or at the moment of speaking is meant, unless it lies far behind.
    found = datetime(said_at.astimezone(UTC).year, number, int(day or 1), tzinfo=UTC)
    return found if found <= said_at + timedelta(days=183) else found.replace(year=found.year - 1)


Meaning = Callable[["re.Match[str]", datetime], "datetime | None"]

_MEANINGS: Final[tuple[tuple[re.Pattern[str], Meaning], ...]] = (
    (
        _pattern(r"(\d{4})-(\d{2})(?:-(\d{2}))?"),
        lambda found, said_at: datetime(int(found[1]), int(found[2]), int(found[3] or 1), tzinfo=UTC),
    ),
    (_pattern("the day before yesterday"), lambda found, said_at: _day(said_at) - timedelta(days=2)),
    (_pattern("the day after tomorrow"), lambda found, said_at: _day(said_at) + timedelta(days=2)),
    (_pattern("yesterday|last night"), lambda found, said_at: _day(said_at) - timedelta(days=1)),
    (_pattern("tomorrow"), lambda found, said_at: _day(said_at) + timedelta(days=1)),
    (_pattern("today|tonight|this morning|this afternoon|this evening"), lambda found, said_at: _day(said_at)),
    (_pattern("just now|right now"), lambda found, said_at: said_at),
    (
        _pattern(rf"({_COUNT}) ({_UNIT})s? (?:ago|earlier|before now)"),
        lambda found, said_at: _shifted(said_at, -_count(found[1]), found[2]),
    ),
    (
        _pattern(rf"in ({_COUNT}) ({_UNIT})s?|({_COUNT}) ({_UNIT})s? from now"),
        lambda found, said_at: _shifted(said_at, _count(found[1] or found[3]), found[2] or found[4]),
    ),
    (
        _pattern(r"(last|previous|past|this|next|coming) (weekend|week|month|year)"),
        lambda found, said_at: _of_unit(found[1], found[2], said_at),
    ),
    (
        _pattern(rf"(last|previous|past|this|next|coming|on) ({_DAY})"),
        lambda found, said_at: _weekday(found[1], found[2], said_at),
    ),
    (
        _pattern(rf"(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?({_MONTH})\.?,?(?: (\d{{4}}))?"),
        lambda found, said_at: _date(found[3], found[2], found[1], said_at),
    ),
    (
        _pattern(rf"({_MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?(?:,? (\d{{4}}))?"),
        lambda found, said_at: _date(found[3], found[1], found[2], said_at),
    ),
    (_pattern(rf"({_MONTH})\.?,? (\d{{4}})"), lambda found, said_at: _date(found[2], found[1], None, said_at)),
    (_pattern(rf"in ({_MONTH})(?!\.?,? \d)"), lambda found, said_at: _date(None, found[1], None, said_at)),
    (_pattern(r"in ((?:19|20)\d{2})"), lambda found, said_at: datetime(int(found[1]), 1, 1, tzinfo=UTC)),
)
_RELATIVE: Final = _pattern(
    rf"yesterday|tomorrow|today|tonight|ago|earlier|from now|now|in (?:{_COUNT}) (?:{_UNIT})s?|last|previous|past|this"
    rf"|next|coming|on (?:{_DAY})|the day (?:before|after)"
)
