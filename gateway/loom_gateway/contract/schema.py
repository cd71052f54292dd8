"""JSON Schemas (2020-12) of the contract's messages: what MCP shows, what OpenAPI holds and what requests are read by.

They keep to what every MCP client takes: an object at the root, nothing referenced, no `anyOf`, `oneOf` or `allOf`.
"""

from collections.abc import Collection
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pydantic import JsonValue

from loom_common.comments import contract_comments
from loom_gateway.contract.rules import WHOLE_TYPES, Keywords, field_rules, is_required, list_keywords, value_keywords

Schema = dict[str, JsonValue]

LIST_VALUE: Final = "google.protobuf.ListValue"
STRUCT: Final = "google.protobuf.Struct"
"""A list and an object whose values are of any kind; in answers only."""

_TYPE_NAMES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_DOUBLE: "number",
    FieldDescriptor.TYPE_FLOAT: "number",
    FieldDescriptor.TYPE_BYTES: "string",
    **dict.fromkeys(WHOLE_TYPES, "integer"),
}


class UnshowableMessage(Exception):
    """A message of a public operation has a form that JSON callers cannot use. Stops the start."""


def request_schema(message: Descriptor, *, hidden: Collection[str] = (), described: bool = True) -> Schema:
    """Returns the schema that a request must fit.

    Args:
        message: The request.
        hidden: Fields that the caller may not send.
        described: Whether the contract's comments are in it.

    Raises:
        UnshowableMessage: The message holds itself, or a type that JSON shows as something else than it is.
    """
    return _object(message, (), hidden=hidden, described=described, strict=True)


def response_schema(message: Descriptor, *, described: bool = True) -> Schema:
    """Returns the schema that every answer fits: fields without presence are always there, and more may come later.

    Raises:
        UnshowableMessage: As `request_schema`.
    """
    return _object(message, (), hidden=(), described=described, strict=False)


def is_map(field: FieldDescriptor) -> bool:
    """Returns whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _object(
    message: Descriptor, above: tuple[str, ...], *, hidden: Collection[str], described: bool, strict: bool
) -> Schema:
    if message.full_name in above:
        raise UnshowableMessage(f"{message.full_name} holds itself")
    inside = (*above, message.full_name)
    fields = [field for field in message.fields if field.name not in hidden]
    properties: dict[str, JsonValue] = {
        field.name: _member(field, inside, described=described, strict=strict) for field in fields
    }
    schema: Schema = {"type": "object", "properties": properties}
    needed: list[JsonValue] = [
        field.name for field in fields if (is_required(field) if strict else not field.has_presence)
    ]
    if needed:
        schema["required"] = needed
    if strict:
        schema["additionalProperties"] = False
    return schema


def _member(field: FieldDescriptor, above: tuple[str, ...], *, described: bool, strict: bool) -> Schema:
    schema: Schema = {}
    if described and (text := contract_comments().of(field.full_name)):
        schema["description"] = text
    rules = field_rules(field)
    if is_map(field) and field.message_type is not None:
        held = field.message_type.fields_by_name["value"]
        schema["type"] = "object"
        schema["additionalProperties"] = _value(held, above, {}, described=described, strict=strict)
    elif field.is_repeated:
        schema["type"] = "array"
        item_keywords = value_keywords(field, rules.repeated.items) if strict else {}
        schema["items"] = _value(field, above, item_keywords, described=described, strict=strict)
        schema.update(list_keywords(rules) if strict else {})
    else:
        keywords = value_keywords(field, rules) if strict else {}
        schema.update(_value(field, above, keywords, described=described, strict=strict))
    return schema


def _value(
    field: FieldDescriptor, above: tuple[str, ...], keywords: Keywords, *, described: bool, strict: bool
) -> Schema:
    if field.message_type is not None and field.message_type.full_name == LIST_VALUE:
        return {"type": "array", "items": {}}
    if field.message_type is not None and field.message_type.full_name == STRUCT:
        return {"type": "object"}
    if field.message_type is not None:
        return _object(field.message_type, above, hidden=(), described=described, strict=strict)
    if field.type not in _TYPE_NAMES:
        # A 64-bit number would be text in JSON, and an enum has no text of its own in this API.
        raise UnshowableMessage(f"{field.full_name} has a type that JSON cannot show as it is")
    # Bytes are base64, which their comments say: no keyword for it is one that every client of MCP takes.
    return {"type": _TYPE_NAMES[field.type], **keywords}
