"""Finds the JSON in a model's answer, whatever the model put around it or did to it.

Time and memory are bounded by the length of the text, which is somebody else's: `json` of the standard library reads
what is right, and what is not is read leniently once.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from loom_common.lenient_json import MAX_DEPTH, JsonValue, TooDeep, read, to_number

MAX_CHARS: Final = 1 << 20
"""Longest text that is read; what is behind it counts as cut off. Source: twice the longest answer that may be asked
for, 131,072 tokens of four characters."""

# Source: chosen. A text with more false beginnings than these is no answer.
_MAX_STARTS: Final = 16
# Characters that are read leniently in all, as a multiple of the text's length; bounds what many objects cost.
_MAX_PASSES: Final = 3

_FENCE: Final = "```"
_FENCE_LANGUAGES: Final = frozenset({"", "json"})
_THOUGHT: Final = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
# An object begins with a key, ends at once, or is cut off at once; other braces are prose or code.
_START: Final = re.compile(r"\{(?=\s*+(?:[\"'“`}]|[A-Za-z_][\w-]*+\s*+:|\Z|//|/\*|,))")
_UNSTORABLE: Final = re.compile(r"[\x00\ud800-\udfff]")
_AROUND: Final = "\ufeff \t\r\n"


class Finding(StrEnum):
    """What an answer held."""

    EXACT = "exact"
    """JSON as it should be, with or without something around it."""
    REPAIRED = "repaired"
    """JSON with faults that were read over."""
    TRUNCATED = "truncated"
    """The beginning of an object that the answer breaks off in: asked again with more tokens, it may be whole."""
    NONE = "none"
    """No object: asking again with more tokens helps nothing."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The object that was found in an answer."""

    finding: Finding
    value: dict[str, JsonValue] | None = None
    """The object; of a truncated one its complete parts, None where there are none."""

    @property
    def whole(self) -> bool:
        """Whether the object is all that the model meant to say."""
        return self.finding in {Finding.EXACT, Finding.REPAIRED}


def parse_object(text: str) -> Parsed:
    """Returns the JSON object in a model's answer.

    It survives fences, prose, thoughts and further objects around it (the longest counts), JSON inside a JSON string,
    and what `lenient_json.read` reads over. Characters that can be stored nowhere, NUL and halves of surrogate pairs,
    become U+FFFD. A text of a megabyte takes a second or two: hand a long one to a thread.
    """
    if len(text) <= MAX_CHARS and (value := _exact(text)) is not None:
        return Parsed(Finding.EXACT, value)
    cut, text = len(text) > MAX_CHARS, text[:MAX_CHARS]
    best = max(_found(_THOUGHT.sub("", text, count=1)), key=lambda found: found[0], default=None)
    if best is None:
        return Parsed(Finding.NONE)
    _, parsed = best
    return Parsed(Finding.TRUNCATED, parsed.value) if cut and not parsed.whole else parsed


def strict_object(text: str) -> dict[str, JsonValue] | None:
    """Returns the object that `text` is, with nothing around it; None where it is none that may be sent on.

    Such is one that is deeper than any reader takes it, or holds a number that is none.
    """
    value = _exact(text) if text.lstrip(_AROUND).startswith("{") else None
    return value if value is not None and _depth(value) <= MAX_DEPTH else None


def without_fences(text: str) -> str:
    """Returns what a code fence around the whole of `text` holds, or `text` itself where there is none.

    Fences inside, such as those in a string of the JSON, stay.
    """
    stripped = text.strip()
    first, line_end, rest = stripped.partition("\n")
    fenced = first.startswith(_FENCE) and first[len(_FENCE) :].strip().lower() in _FENCE_LANGUAGES
    return rest.removesuffix(_FENCE).strip() if fenced and line_end and rest.endswith(_FENCE) else text


def _exact(text: str) -> dict[str, JsonValue] | None:
    """Returns the object that the whole text is, or that the JSON string holds that the whole text is."""
    text = text.strip(_AROUND)
    if text.startswith('"'):
        try:
            inside = _STRICT.decode(text)
        except (ValueError, RecursionError):
            return None
        text = inside.strip(_AROUND) if isinstance(inside, str) else ""
    decoded = _decoded(text, 0) if text.startswith("{") else None
    return decoded[0] if decoded is not None and decoded[1] == len(text) else None


def _found(text: str) -> Iterator[tuple[int, Parsed]]:
    """Yields the objects that stand beside each other in the text, each with its length."""
    at, starts, budget, doubtful = 0, 0, _MAX_PASSES * len(text), False
    while starts < _MAX_STARTS and budget > 0 and (start := _START.search(text, at)):
        begin = start.start()
        at = begin + 1
        if (decoded := _decoded(text, begin)) is not None:
            value, at = decoded
            if value or not doubtful:
                yield at - begin, Parsed(Finding.EXACT, value)
            continue
        starts += 1
        if doubtful:
            continue
        try:
            reading = read(text, begin)
        except TooDeep:
            return
        budget -= reading.end - begin
        found = _storable(reading.value) if isinstance(reading.value, dict) else {}
        if reading.complete:
            at = reading.end
            yield at - begin, Parsed(Finding.REPAIRED, found)
        elif reading.begun:
            yield len(text) - begin, Parsed(Finding.TRUNCATED, found or None)
            return
        else:
            # Cut before its first value, or a brace of the prose, behind which only faultless JSON is the answer.
            doubtful = True
            yield 0, Parsed(Finding.TRUNCATED)


def _decoded(text: str, begin: int) -> tuple[dict[str, JsonValue], int] | None:
    """Returns the faultless object that begins here and the place behind it, or None."""
    try:
        value, end = _STRICT.raw_decode(text, begin)
        return (_storable(value), end) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


def _depth(value: dict[str, JsonValue]) -> int:
    """Returns how many containers are inside each other."""
    level: list[dict[str, JsonValue] | list[JsonValue]] = [value]
    depth = 0
    while level:
        depth += 1
        held = [item for one in level for item in (one.values() if isinstance(one, dict) else one)]
        level = [item for item in held if isinstance(item, dict | list)]
    return depth


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_STRICT: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=to_number, parse_int=to_number)


def _storable(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Returns the object with characters replaced that can be stored nowhere."""
    return {_clean(key): _storable_value(item) for key, item in value.items()}


def _storable_value(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, list):
        return [_storable_value(item) for item in value]
    return _storable(value) if isinstance(value, dict) else value


def _clean(text: str) -> str:
    return text if text.isascii() and "\x00" not in text else _UNSTORABLE.sub("\ufffd", text)
