"""Renders answers: messages out as JSON, with proto field names and empty values shown.

As protobuf's own renderer does it, which asks each field of each message anew what it is and takes seven times as long;
what the two give is compared by a test. Kinds of values that answers do not hold today are left to that renderer.
"""

import base64
import functools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from google.protobuf import json_format, struct_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from pydantic import JsonValue

from loom_gateway.contract.schema import LIST_VALUE, STRUCT, is_map

# Made once: `json.dumps` makes one for each answer that is not written its default way.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

_Show: TypeAlias = Callable[[Any], JsonValue]
"""Returns a field's value as JSON shows it."""

# Values of these are their own JSON.
_AS_IT_IS: Final = frozenset(
    {
        FieldDescriptor.TYPE_STRING,
        FieldDescriptor.TYPE_BOOL,
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_SINT32,
        FieldDescriptor.TYPE_UINT32,
    }
)
# Every whole number up to it is a double of its own.
_EXACT: Final = 2.0**53
_EMPTY: Final[Mapping[int, JsonValue]] = {
    FieldDescriptor.CPPTYPE_STRING: "",
    FieldDescriptor.CPPTYPE_BOOL: False,
    FieldDescriptor.CPPTYPE_DOUBLE: 0.0,
}


def render(message: Message) -> dict[str, JsonValue]:
    """Returns an answer as JSON shows it: empty values are there, absent optional ones are not."""
    shows, defaults = _plan(message.DESCRIPTOR)
    if shows is None:
        return _by_protobuf(message)
    found = {field.name: shows[field.number](value) for field, value in message.ListFields()}
    for name, default in defaults:
        if name not in found:
            found[name] = default()
    return found


def encode(value: JsonValue) -> bytes:
    """Returns a value as UTF-8 JSON.

    Text that UTF-8 cannot hold is replaced: an answer with one odd character is better than none.
    """
    return _ENCODER.encode(value).encode("utf-8", "replace")


def _by_protobuf(message: Message) -> dict[str, JsonValue]:
    rendered: dict[str, JsonValue] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return rendered


@functools.cache
def _plan(message: Descriptor) -> tuple[dict[int, _Show] | None, tuple[tuple[str, Callable[[], JsonValue]], ...]]:
    """Returns how each field is shown, by number, and what is shown of those that are empty; None: by protobuf."""
    shows = {field.number: _show(field) for field in message.fields}
    if message.full_name.startswith("google.protobuf.") or None in shows.values():
        return None, ()
    defaults = tuple((field.name, _default(field)) for field in message.fields if not field.has_presence)
    return {number: show for number, show in shows.items() if show is not None}, defaults


def _show(field: FieldDescriptor) -> _Show | None:
    if is_map(field) and field.message_type is not None:
        key, held = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        of_value = _show_one(held)
        if of_value is None or key.type != FieldDescriptor.TYPE_STRING:
            return None
        return lambda value: {key: of_value(value[key]) for key in value}
    of_item = _show_one(field)
    if of_item is None or not field.is_repeated:
        return of_item
    return list if of_item is _same else lambda value: [of_item(item) for item in value]


def _show_one(field: FieldDescriptor) -> _Show | None:
    if field.message_type is not None:
        return _OF_ANY_KIND.get(field.message_type.full_name, render)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _base64
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _number
    return _same if field.type in _AS_IT_IS else None


def _default(field: FieldDescriptor) -> Callable[[], JsonValue]:
    if is_map(field):
        return dict
    if field.is_repeated:
        return list
    value = _EMPTY.get(field.cpp_type, 0)
    return lambda: value


def _same(value: JsonValue) -> JsonValue:
    return value


def _base64(value: bytes) -> JsonValue:
    return base64.b64encode(value).decode("ascii")


def _list(value: struct_pb2.ListValue) -> JsonValue:
    return [_any(item) for item in value.values]


def _object(value: struct_pb2.Struct) -> JsonValue:
    return {name: _any(item) for name, item in value.fields.items()}


def _any(value: struct_pb2.Value) -> JsonValue:
    """Returns a value of any kind; whole numbers without a fraction, as a count is written."""
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and abs(number) <= _EXACT else _number(number)
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "list_value":
            return _list(value.list_value)
        case "struct_value":
            return _object(value.struct_value)
        case _:
            return None


def _number(value: float) -> JsonValue:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_OF_ANY_KIND: Final[Mapping[str, _Show]] = {LIST_VALUE: _list, STRUCT: _object}
