"""The schema of a namespace's profiles: which labels there are, and what a value under each may be."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Final

from loom_common.call import Scope
from loom_memory.profiles.domain.sections import MAX_VALUE_BYTES, fold_label, fold_value, label_of

_TRUE: Final = frozenset({"true", "yes"})
_FALSE: Final = frozenset({"false", "no"})


class FieldType(StrEnum):
    """What a value may be."""

    TEXT = "text"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    DATE = "date"
    CHOICE = "choice"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class ProfileField:
    """One typed field.

    Attributes:
        choices: What a choice may be; of another type none.
        max_chars: Longest value; 0 for the longest that any section may have.
    """

    label: str
    type: FieldType = FieldType.TEXT
    description: str = ""
    choices: tuple[str, ...] = ()
    max_chars: int = 0

    def value_of(self, text: str) -> str:
        """Returns a value in the form that its type has one of.

        Raises:
            ValueError: It is no value of the type; the text says what one is.
        """
        text = text.strip()
        if self.max_chars and len(text) > self.max_chars:
            raise ValueError(f"is longer than {self.max_chars} characters")
        match self.type:
            case FieldType.TEXT:
                return text
            case FieldType.NUMBER:
                return _number(text)
            case FieldType.INTEGER:
                return _integer(text)
            case FieldType.BOOLEAN:
                return _boolean(text)
            case FieldType.DATE:
                return _date(text)
            case FieldType.CHOICE:
                return self._choice(text)
            case FieldType.LIST:
                return _list(text)

    def _choice(self, text: str) -> str:
        for choice in self.choices:
            if fold_value(choice) == fold_value(text):
                return choice
        raise ValueError(f"is none of {', '.join(self.choices)}")


@dataclass(frozen=True, slots=True)
class ProfileSchema:
    """One version of a schema; one without fields is its removal.

    Attributes:
        is_closed: Whether a label that it does not have is refused.
    """

    scope: Scope
    fields: tuple[ProfileField, ...]
    is_closed: bool
    version: int
    actor: str
    updated_at: datetime

    def field_of(self, label: str) -> ProfileField | None:
        """Returns the field that a label names."""
        folded = fold_label(label)
        return next((one for one in self.fields if fold_label(one.label) == folded), None)


def checked_fields(fields: Sequence[ProfileField]) -> tuple[ProfileField, ...]:
    """Returns fields as they are stored.

    Raises:
        ValueError: Two have one label, or one says what its type does not have.
    """
    seen: set[str] = set()
    kept = []
    for each in fields:
        label = label_of(each.label)
        if fold_label(label) in seen:
            raise ValueError(f"{label!r} stands there twice")
        seen.add(fold_label(label))
        choices = tuple(dict.fromkeys(choice.strip() for choice in each.choices if choice.strip()))
        if (each.type is FieldType.CHOICE) != bool(choices):
            raise ValueError(f"{label!r} must have choices exactly where its type is choice")
        if len({fold_value(choice) for choice in choices}) < len(choices):
            raise ValueError(f"{label!r} has two choices that read the same")
        kept.append(ProfileField(label, each.type, each.description.strip(), choices, each.max_chars))
    return tuple(kept)


def fields_to_json(fields: Sequence[ProfileField]) -> str:
    """Returns fields as they are stored."""
    return json.dumps([asdict(one) for one in fields], ensure_ascii=False)


def fields_from_json(text: str) -> tuple[ProfileField, ...]:
    """Returns fields that were stored."""
    held: list[dict[str, Any]] = json.loads(text)  # Any: JSON that this module wrote
    return tuple(
        ProfileField(one["label"], FieldType(one["type"]), one["description"], tuple(one["choices"]), one["max_chars"])
        for one in held
    )


def _number(text: str) -> str:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or "_" in text:
        raise ValueError("is no number")
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def _integer(text: str) -> str:
    if len(text) > 20 or not text.removeprefix("-").removeprefix("+").isascii():
        raise ValueError("is no whole number")
    if not text.removeprefix("-").removeprefix("+").isdigit():
        raise ValueError("is no whole number")
    return str(int(text))


def _boolean(text: str) -> str:
    folded = text.casefold()
    if folded in _TRUE:
        return "true"
    if folded in _FALSE:
        return "false"
    raise ValueError("is neither true nor false")


def _date(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("is no date such as 2026-11-30") from None


def _list(text: str) -> str:
    """Returns entries, one to a line, each once."""
    entries = {fold_value(one): " ".join(one.split()) for one in reversed(text.splitlines()) if one.strip()}
    joined = "\n".join(reversed(entries.values()))
    if len(joined.encode()) > MAX_VALUE_BYTES:
        raise ValueError("is too long")
    return joined
