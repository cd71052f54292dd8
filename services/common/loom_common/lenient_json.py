"""Reads JSON that a model wrote badly, in one pass whose time is proportional to the text.

It is written here because the kept libraries do not hold that bound. Measured 2026-11-30: json-repair 0.64 takes 3.6 s
for 4,000 opening braces and minutes for 4 kB of unclosed quotes, and what is read is a stranger's text; dirtyjson
(last release 2022), json5 and partial-json-parser refuse most of what models write.
"""

import math
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_DEPTH: Final = 64
"""Most containers inside each other. Source: chosen; no prompt of ours asks for more than five."""

_SPACE: Final = re.compile(r"[\s\ufeff]*")
# Possessive, as all that repeats here: what has matched is not tried again shorter, so that time stays linear.
_NUMBER: Final = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?+(?=[\s,\]}:/]|\Z)")
_BARE: Final = re.compile(r"[^,\]}{\[\n\"]++")
_BARE_KEY: Final = re.compile(r"[^\s:,\]}{\[\"']++")
_NEXT_KEY: Final = re.compile(r"\s*+(?:[\"'“`}\]]|[A-Za-z_][\w-]*+\s*+:|\Z|//|/\*)")
_NEXT_ITEM: Final = re.compile(r"\s*+(?:[\"'“`\[{\]}\d+-]|true|false|null|True|False|None|\Z|//|/\*)")
_HEX4: Final = re.compile(r"[0-9a-fA-F]{4}")

_CLOSING: Final = {'"': '"', "'": "'", "`": "`", "“": "”"}
_CHUNK: Final = {closing: re.compile(rf"[^\\{closing}]*+") for closing in _CLOSING.values()}
_ESCAPES: Final = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: Final[dict[str, JsonValue]] = {
    "true": True, "True": True, "false": False, "False": False, "null": None, "None": None, "undefined": None,
    "NaN": None, "Infinity": None, "-Infinity": None,
}  # fmt: skip


class TooDeep(ValueError):
    """More containers are inside each other than are read."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read from one place of a text on."""

    value: JsonValue
    """The container; of one that the text breaks off in, what is complete."""
    end: int
    """Place behind it."""
    complete: bool
    """Whether it was closed."""
    begun: bool
    """Whether a key or an item was read at all; where not, it may be a brace of prose."""


def read(text: str, start: int) -> Reading:
    """Reads the object or array that begins at `start`.

    Read as if they were right: trailing, doubled and missing commas, quotes of other kinds, quotes inside strings that
    are not escaped, escapes that are none, line breaks in strings, bare keys and words, comments, Python's words,
    closing brackets of the wrong kind.

    Of a container that the text breaks off in, an array keeps its complete items and an object its complete members;
    an object inside another container that is not closed is left out.

    Raises:
        TooDeep: More than `MAX_DEPTH` containers are inside each other.
    """
    reader = _Reader(text, start)
    value, complete = reader.container()
    return Reading(value, reader.at, complete, reader.begun)


class _Reader:
    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.at = start
        self.begun = False
        self._open: list[str] = []

    def container(self) -> tuple[JsonValue, bool]:
        """Reads the container that begins here; tells whether it was closed."""
        if len(self._open) >= MAX_DEPTH:
            raise TooDeep(f"more than {MAX_DEPTH} containers are inside each other")
        opening = self.text[self.at]
        self._open.append(opening)
        self.at += 1
        try:
            return self._object() if opening == "{" else self._array()
        finally:
            self._open.pop()

    def _object(self) -> tuple[JsonValue, bool]:
        found: dict[str, JsonValue] = {}
        while not self._ended():
            begun = self.at
            if self._closes("}", "]"):
                return found, True
            if self.at != begun:
                continue
            key = self._key()
            if key is None:
                continue
            self.begun = True
            value, complete = self._value(in_object=True)
            if complete or isinstance(value, list):
                found[key] = value
        return found, False

    def _array(self) -> tuple[JsonValue, bool]:
        found: list[JsonValue] = []
        while not self._ended():
            begun = self.at
            if self._closes("]", "}"):
                return found, True
            if self.at != begun:
                continue
            value, complete = self._value(in_object=False)
            if complete or isinstance(value, list):
                found.append(value)
        return found, False

    def _closes(self, own: str, other: str) -> bool:
        """Tells whether the container ends here, and steps over what ends it or means nothing."""
        character = self.text[self.at]
        if character == own:
            self.at += 1
            return True
        if character == other:
            if ("[" if other == "]" else "{") in self._open[:-1]:
                return True  # it closes one further out, which closes this one too
            self.at += 1
            return False
        return False

    def _ended(self) -> bool:
        """Steps over space, comments and commas; tells whether nothing follows."""
        while True:
            self._skip_space()
            if self.at >= len(self.text):
                return True
            if self.text[self.at] not in ",;":
                return False
            self.at += 1

    def _key(self) -> str | None:
        """Reads a key and its colon; None where there is none, one step further or at the end."""
        character = self.text[self.at]
        if character in _CLOSING:
            key, complete = self._string(":")
            if not complete:
                return None
        elif bare := _BARE_KEY.match(self.text, self.at):
            key, self.at = bare[0], bare.end()
        elif character in "}]":
            return None
        else:
            self.at += 1
            return None
        self._skip_space()
        if self.text[self.at : self.at + 1] != ":":
            return None
        self.at += 1
        return key

    def _value(self, *, in_object: bool) -> tuple[JsonValue, bool]:
        self._skip_space()
        if self.at >= len(self.text):
            return None, False
        character = self.text[self.at]
        if character in "{[":
            return self.container()
        if character in _CLOSING:
            return self._string("}" if in_object else "]")
        if character in ",}]":  # nothing stands where a value should
            return None, True
        if number := _NUMBER.match(self.text, self.at):
            self.at = number.end()
            # Digits may be missing from one that the text ends with.
            return to_number(number[0]), self.at < len(self.text)
        if (bare := _BARE.match(self.text, self.at)) is None:
            self.at += 1
            return None, True
        self.at = bare.end()
        word = bare[0].strip()
        return _WORDS.get(word, word), self.at < len(self.text)

    def _string(self, context: str) -> tuple[str, bool]:
        """Reads a string; tells whether it was closed.

        Args:
            context: What may follow it: `:` a key's colon, `}` another member, `]` another item.
        """
        closing = _CLOSING[self.text[self.at]]
        chunk = _CHUNK[closing]
        parts: list[str] = []
        self.at += 1
        while True:
            run = chunk.match(self.text, self.at)
            assert run is not None  # it matches the empty text too
            parts.append(run[0])
            self.at = run.end()
            if self.at >= len(self.text):
                return "".join(parts), False
            if self.text[self.at] == "\\":
                parts.append(self._escape())
                continue
            self.at += 1
            if self._string_ends(context):
                return "".join(parts), True
            parts.append(closing)

    def _string_ends(self, context: str) -> bool:
        """Tells whether the quote before this place closes its string: what follows must be able to follow one."""
        at = _space_end(self.text, self.at)
        follows = self.text[at : at + 1]
        if not follows:
            return True
        if context == ":":
            return follows == ":"
        if follows == ",":
            return (_NEXT_KEY if context == "}" else _NEXT_ITEM).match(self.text, at + 1) is not None
        if follows in "}]":
            return True
        # A forgotten comma: the next one begins on a line of its own.
        return follows in _CLOSING and "\n" in self.text[self.at : at]

    def _escape(self) -> str:
        """Reads an escape; one that is none stays as it is."""
        self.at += 1
        character = self.text[self.at : self.at + 1]
        if character == "u" and (digits := _HEX4.match(self.text, self.at + 1)):
            self.at += 5
            return self._unit(int(digits[0], 16))
        self.at += len(character)
        return _ESCAPES.get(character, "\\" + character)

    def _unit(self, unit: int) -> str:
        """Returns the character of a UTF-16 unit, together with the one after it where they are a pair."""
        if 0xD800 <= unit < 0xDC00 and self.text[self.at : self.at + 2] == "\\u":
            low = _HEX4.match(self.text, self.at + 2)
            if low and 0xDC00 <= (second := int(low[0], 16)) < 0xE000:
                self.at += 6
                return chr(0x10000 + ((unit - 0xD800) << 10) + (second - 0xDC00))
        return chr(unit)

    def _skip_space(self) -> None:
        """Steps over space and comments."""
        while True:
            self.at = _space_end(self.text, self.at)
            if self.text.startswith("//", self.at):
                end = self.text.find("\n", self.at)
            elif self.text.startswith("/*", self.at):
                end = self.text.find("*/", self.at + 2)
                end = end + 2 if end >= 0 else end
            else:
                return
            self.at = end if end >= 0 else len(self.text)


def _space_end(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space is not None else at


def to_number(text: str) -> int | float | None:
    """Returns the number; None where it has too many digits or is beyond what a float holds."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
