"""Says in words what a setting may be."""

import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any, Final

import annotated_types
from pydantic import SecretStr
from pydantic.fields import FieldInfo

ALLOWED_KEY: Final = "allowed"

_NOUNS: Final[dict[object, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    SecretStr: "text",
}


def allowed_text(field: FieldInfo) -> str:
    """Returns what a field allows, to follow the words "it must be".

    A field whose rule reads badly states it in `json_schema_extra` under `allowed`.
    """
    if isinstance(field.json_schema_extra, dict) and (stated := field.json_schema_extra.get(ALLOWED_KEY)):
        return str(stated)
    kind = _without_none(field.annotation)
    if typing.get_origin(kind) is typing.Literal:
        return _one_of(typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _one_of(member.value for member in kind)
    words = _NOUNS.get(kind, "a value of its form")
    bounds = [text for text in (_bound(rule) for rule in field.metadata) if text]
    if bounds:
        words += ", " + " and ".join(bounds)
    if pattern := next((rule.pattern for rule in field.metadata if getattr(rule, "pattern", None)), None):
        words += f" that matches {pattern}"
    return words


def _without_none(annotation: object) -> object:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(annotation) if kind is not type(None)]
        annotation = kinds[0] if len(kinds) == 1 else annotation
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation


def _one_of(values: typing.Iterable[object]) -> str:
    words = [str(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _bound(rule: Any) -> str:  # Any: pydantic keeps rules of many types
    match rule:
        case annotated_types.Ge():
            return f"at least {rule.ge}"
        case annotated_types.Gt():
            return f"above {rule.gt}"
        case annotated_types.Le():
            return f"at most {rule.le}"
        case annotated_types.Lt():
            return f"below {rule.lt}"
        case annotated_types.MinLen():
            return f"at least {rule.min_length} characters long"
        case annotated_types.MaxLen():
            return f"at most {rule.max_length} characters long"
        case _:
            return ""
