"""How long a provider asks to wait before the next attempt."""

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Returns the time to wait before the next attempt in seconds, not below 0, or None where no header says it.

    `retry-after-ms` is OpenAI's; `retry-after` is seconds or a date.
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    stated = headers.get("retry-after")
    if stated is None:
        return None
    if (seconds := _number(stated)) is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(stated).timestamp() - time.time())
    except (ValueError, OverflowError):  # no date, or one of no calendar
        return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    # Neither infinite nor no number at all.
    return value if value is not None and 0 <= value < float("inf") else None
