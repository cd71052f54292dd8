"""What the providers have in common: how long they ask to wait, and that their answers are what they must be."""

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from loom_llm.domain.client import LLMResult
from loom_llm.domain.failures import FailureKind, ProviderError


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
    except ValueError:
        return None


def checked(result: LLMResult) -> LLMResult:
    """Returns `result` where its text is text and its counts are counts.

    Raises:
        ProviderError: They are not.
    """
    counts = (result.input_tokens, result.output_tokens, result.cached_input_tokens, result.cache_write_tokens)
    whole = all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts)
    if not (whole and isinstance(result.text, str) and isinstance(result.model, str)):
        raise ProviderError(result.provider, FailureKind.MALFORMED)
    return result


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    # Neither infinite nor no number at all.
    return value if value is not None and 0 <= value < float("inf") else None
