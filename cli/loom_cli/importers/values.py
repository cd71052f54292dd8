"""Careful access to JSON that somebody else wrote: what is missing or of another type is empty, never an exception."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
# A space between date and time and no seconds behind the minute are how Python and databases print times.
_SPACED: Final = re.compile(r"(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2}:\d{2}\S*)\Z")


def fields(value: object) -> Mapping[str, object]:
    """Returns an object's fields; none for anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[object]:
    """Returns a list's items; none for anything else."""
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    """Returns a text; empty for anything else."""
    return value if isinstance(value, str) else ""


def first_text(holder: Mapping[str, object], *names: str) -> str:
    """Returns the first of some fields that is a text with something in it; empty where none is."""
    return next((found for name in names if (found := text(holder.get(name))).strip()), "")


def texts(value: object) -> Iterator[str]:
    """Yields the texts of a list."""
    return (item for item in listed(value) if isinstance(item, str))


def time_text(value: object) -> str:
    """Returns a time that is given as text, in the form that an import reads; empty where there is none.

    What is no time is left as it is: the server says so, and names the line.
    """
    given = text(value).strip()
    if _DATE.match(given):
        return f"{given}T00:00:00Z"
    spaced = _SPACED.match(given)
    return f"{spaced[1]}T{spaced[2]}" if spaced else given


def time_seconds(value: object) -> str:
    """Returns a time that is given as seconds since 1970; empty where there is none, or none that a calendar has."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    try:
        if not math.isfinite(value):
            return ""
        return datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):
        return ""
