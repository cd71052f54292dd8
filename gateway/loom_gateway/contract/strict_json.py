"""JSON as callers must write it: one object, bounded in depth, without duplicate keys or numbers that JSON lacks.

The standard parser takes the last of two equal keys, reads `NaN`, and recurses as deep as the text asks it to. Each of
these would let a request mean something else here than at its sender, so each is refused.
"""

import array
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NoReturn

from pydantic import JsonValue

from loom_common.errors import FieldViolation, MalformedRequest

MAX_DEPTH: Final = 64

_BOM: Final = b"\xef\xbb\xbf"
# A string, or what is left of one that never ends. Possessive, so that no text makes it backtrack.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
# Opening brackets become 1 and closing ones -1 (as signed bytes); everything else is dropped.
_OPENING: Final = b"[{"
_BRACKETS: Final = frozenset(b"[]{}")
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_STEPS: Final = bytes(1 if byte in _OPENING else 255 for byte in range(256))
_SHOWN_CHARS: Final = 64


def parse_json(body: bytes, *, max_depth: int = MAX_DEPTH) -> JsonValue:
    """Returns the value that `body` holds.

    Escaped halves of surrogate pairs pass: `half_surrogates` names the fields that hold them.

    Raises:
        MalformedRequest: It is not UTF-8, not JSON, too deep, or holds a key twice.
    """
    if body.startswith(_BOM):
        raise MalformedRequest("The body begins with a byte order mark; send plain UTF-8 without one.")
    if nesting(body) > max_depth:
        raise MalformedRequest(
            f"The body nests deeper than {max_depth} levels; send a flatter one.", detail={"max_depth": max_depth}
        )
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"The body is not UTF-8 at byte {error.start}.", detail={"byte": error.start}) from None
    return _loads(text)


def parse_json_object(body: bytes, *, max_depth: int = MAX_DEPTH) -> dict[str, JsonValue]:
    """Returns the object that `body` holds; an empty body is an empty object.

    Raises:
        MalformedRequest: As `parse_json`, or the value is not an object.
    """
    value = parse_json(body, max_depth=max_depth) if body else {}
    if not isinstance(value, dict):
        raise MalformedRequest("The body must be a JSON object.")
    return value


def nesting(body: bytes) -> int:
    """Returns how deep the brackets of a JSON text nest, without parsing it; for other text, some number."""
    brackets = _STRING.sub(b"", body).translate(_STEPS, _NOT_BRACKETS)
    return max(itertools.accumulate(array.array("b", brackets)), default=0)


def half_surrogates(value: JsonValue) -> list[FieldViolation]:
    """Returns the fields whose text holds half of a surrogate pair, which UTF-8 cannot carry, in their order."""
    return list(_half_surrogates(value, ""))


def shown(text: str) -> str:
    """Returns a caller's text as an error may show it: short, and free of characters that cannot be sent back."""
    cut = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in cut)


def joined(path: str, key: str | int) -> str:
    """Returns the path of a member: `items[2].value`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{shown(key)}" if path else shown(key)


def _half_surrogates(value: JsonValue, path: str) -> Iterator[FieldViolation]:
    if isinstance(value, str):
        if not _is_encodable(value):
            yield FieldViolation(path, "must not hold half of a surrogate pair")
    elif isinstance(value, Mapping):
        for key, member in value.items():
            if not _is_encodable(key):
                yield FieldViolation(joined(path, key), "must not hold half of a surrogate pair in its name")
            yield from _half_surrogates(member, joined(path, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _half_surrogates(member, joined(path, index))


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _loads(text: str) -> JsonValue:
    try:
        value: JsonValue = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise MalformedRequest(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            detail={"line": error.lineno, "column": error.colno},
        ) from None
    except ValueError:
        # Python refuses to read whole numbers of more than 4,300 digits.
        raise MalformedRequest("The body holds a number that is too long.") from None
    return value


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(shown(key) for key, count in counts.items() if count > 1)
        raise MalformedRequest(
            f"The key {twice!r} stands twice in one object.", fields=(FieldViolation(twice, "stands twice"),)
        )
    return found


def _no_constant(name: str) -> NoReturn:
    raise MalformedRequest(f"{name} is not a JSON number.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise MalformedRequest("The body holds a number that is too large.")
    return number


# Made once: `json.loads` makes one for each text that is not read its default way.
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
