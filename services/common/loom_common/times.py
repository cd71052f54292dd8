"""Points in time: read as people and programs write them, written in one form."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from loom_common.errors import InvalidArgument

# Source: what ClickHouse's DateTime64(3) holds without loss, 1900 to 2299.
MIN_YEAR: Final = 1900
MAX_YEAR: Final = 2299

_FORM: Final = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](?P<clock>\d{2}:\d{2}(?::\d{2})?)(?:[.,](?P<fraction>\d{1,9}))?"
    r"\s?(?P<offset>[Zz]|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)
_ALLOWED: Final = (
    "must be a time such as 2026-11-30T13:05:00Z, 2026-11-30T13:05:00+02:00, 2026-11-30T13:05 or 2026-11-30"
)


def parse_time(text: str, field: str) -> datetime:
    """Returns the point in time that `text` names, in UTC.

    Reads RFC 3339; a time without offset is UTC, a date alone its first moment, digits beyond microseconds are
    dropped. White space around it does not count.

    Args:
        text: What the caller sent.
        field: Name of the field, for the error.

    Raises:
        InvalidArgument: It is no such time, no day of the calendar, or lies outside the years 1900 to 2299.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise InvalidArgument.of(field, _ALLOWED)
    try:
        found = _built(match)
    except (ValueError, OverflowError):
        raise InvalidArgument.of(field, "names no day or hour of the calendar") from None
    if not MIN_YEAR <= found.year <= MAX_YEAR:
        raise InvalidArgument.of(field, f"must lie in the years {MIN_YEAR} to {MAX_YEAR}")
    return found


def parse_optional_time(text: str, field: str) -> datetime | None:
    """Returns the point in time that `text` names, or None for an empty text.

    Raises:
        InvalidArgument: As `parse_time`.
    """
    return parse_time(text, field) if text.strip() else None


def format_time(moment: datetime) -> str:
    """Returns a point in time as `2026-11-30T13:05:00.000Z`: UTC, milliseconds, later digits dropped.

    Raises:
        ValueError: It has no offset, so that it names no point in time.
    """
    if moment.tzinfo is None:
        raise ValueError("a time without offset names no point in time")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_optional_time(moment: datetime | None) -> str:
    """Returns a point in time as `format_time` does, empty for None."""
    return "" if moment is None else format_time(moment)


def _built(match: re.Match[str]) -> datetime:
    clock = match["clock"] or "00:00"
    # A leap second is the same point in time as the first moment of the minute after it.
    leap = clock.endswith(":60")
    naive = datetime.fromisoformat(f"{match['date']}T{clock[:-2] + '59' if leap else clock}")
    micros = 0 if leap else int((match["fraction"] or "0").ljust(6, "0")[:6])
    found = naive.replace(tzinfo=_offset(match["offset"])) + timedelta(seconds=int(leap), microseconds=micros)
    return found.astimezone(UTC)


def _offset(text: str | None) -> timezone:
    if text is None or text in "Zz":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    if hours > 23 or minutes > 59:
        raise ValueError("no such offset")
    span = timedelta(hours=hours, minutes=minutes)
    return timezone(-span if text[0] == "-" else span)
