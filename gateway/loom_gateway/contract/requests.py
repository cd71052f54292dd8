"""Reads one operation's requests: arguments as JSON in, a message or an error that names each field out.

Three checks, in this order: the form (types, unknown fields) against the schema that callers are shown, characters and
numbers that no message can hold, then the contract's value rules by the very check that every service runs, so that a
field is refused here in the words in which the service refuses it over gRPC.
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from pydantic import JsonValue

from loom_common.errors import FieldViolation, InvalidArgument, MalformedRequest
from loom_common.interceptors.validation import check_message
from loom_gateway.contract.rules import INT32_MAX, INT32_MIN, WHOLE_TYPES
from loom_gateway.contract.schema import Schema, request_schema
from loom_gateway.contract.strict_json import half_surrogates, joined

_TYPE_WORDS: Final = {
    "string": "text",
    "boolean": "true or false",
    "number": "a number",
    "integer": "a whole number",
    "array": "a list",
    "object": "an object",
}
_PLAIN_KINDS: Final[Mapping[int, type]] = {
    FieldDescriptor.TYPE_STRING: str,
    FieldDescriptor.TYPE_BOOL: bool,
    **dict.fromkeys(WHOLE_TYPES, int),
}
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
_MAX_NAMED: Final = 20


class RequestReader:
    """Reads the requests of one operation.

    Args:
        request: The request's message.
        hidden: Fields that are refused as if the operation did not have them.
        dropped: Fields whose value, if one is sent, is passed over.
        forced: Values that fields are given, whatever is sent.
    """

    def __init__(
        self,
        request: Descriptor,
        *,
        hidden: Collection[str] = (),
        dropped: Collection[str] = (),
        forced: Mapping[str, JsonValue] | None = None,
    ) -> None:
        self._schema = request_schema(request, hidden=hidden, described=False)
        self._make: Callable[[], Message] = message_factory.GetMessageClass(request)
        self._forced = dict(forced or {})
        self._plain_kinds = {
            field.name: _PLAIN_KINDS[field.type]
            for field in request.fields
            if field.type in _PLAIN_KINDS
            and not field.is_repeated
            and field.name not in hidden
            # Of those of which only one may be there, the whole way refuses two.
            and (field.containing_oneof is None or len(field.containing_oneof.fields) == 1)
        }
        self._passed_over = frozenset(dropped) | self._forced.keys()

    def read(self, arguments: Mapping[str, JsonValue]) -> Message:
        """Returns the request that the arguments stand for.

        Raises:
            MalformedRequest: A field is unknown or has the wrong type; `fields` names each.
            InvalidArgument: A field breaks its rule; `fields` names each.
        """
        held = arguments
        if self._passed_over:
            held = {name: value for name, value in arguments.items() if name not in self._passed_over} | self._forced
        message = self._plain(held)
        if message is None:
            message = self._whole(dict(held))
        check_message(message)
        return message

    def _plain(self, arguments: Mapping[str, JsonValue]) -> Message | None:
        """Returns the request of arguments that are texts, flags and whole numbers alone, which most are.

        Where it returns None the whole way decides, which takes several times as long.
        """
        message = self._make()
        for name, value in arguments.items():
            kind = self._plain_kinds.get(name)
            # Characters beyond ASCII may be halves of pairs; numbers that are 1.0 and the like stand for whole ones.
            if (
                type(value) is not kind
                or (kind is str and not value.isascii())  # type: ignore[union-attr]  # it is text
                or (kind is int and not INT32_MIN <= value <= INT32_MAX)  # type: ignore[operator]  # it is a number
            ):
                return None
            setattr(message, name, value)
        return message

    def _whole(self, held: dict[str, JsonValue]) -> Message:
        form = list(_form_problems(held, self._schema, ""))
        if form:
            raise MalformedRequest(_sentence(form), fields=form[:_MAX_NAMED])
        unfit = half_surrogates(held) + list(_range_problems(held, self._schema, ""))
        if unfit:
            raise InvalidArgument(_sentence(unfit), fields=unfit[:_MAX_NAMED])
        return self._parsed(held)

    def _parsed(self, arguments: dict[str, JsonValue]) -> Message:
        message = self._make()
        try:
            json_format.ParseDict(arguments, message)
        except (json_format.ParseError, ValueError, OverflowError):
            # The checks before leave nothing to refuse here; a caller is told so rather than shown a parser's text.
            raise MalformedRequest(
                "The request does not fit the operation; see /openapi.json for its fields."
            ) from None
        return message


def _sentence(problems: list[FieldViolation]) -> str:
    told = "; ".join(f"{problem.field}: {problem.description}" for problem in problems[:3])
    more = len(problems) - 3
    return f"{told}; and {more} more." if more > 0 else f"{told}."


def _form_problems(value: JsonValue, schema: Schema, path: str) -> Iterator[FieldViolation]:
    kind = schema["type"]
    if not _is_a(value, str(kind)):
        yield FieldViolation(path, f"must be {_TYPE_WORDS[str(kind)]}, not {_kind_of(value)}")
    elif isinstance(value, dict):
        yield from _member_problems(value, schema, path)
    elif isinstance(value, list):
        items = schema["items"]
        if isinstance(items, dict):
            for index, member in enumerate(value):
                yield from _form_problems(member, items, joined(path, index))


def _member_problems(value: dict[str, JsonValue], schema: Schema, path: str) -> Iterator[FieldViolation]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, member in value.items():
        known = properties.get(name) if isinstance(properties, dict) else None
        found = known if known is not None else others
        if isinstance(found, dict):
            yield from _form_problems(member, found, joined(path, name))
        else:
            yield FieldViolation(joined(path, name), _unknown(name, properties))


def _unknown(name: str, properties: JsonValue) -> str:
    snake = _CAMEL.sub(r"_\1", name).lower()
    if isinstance(properties, dict) and snake in properties:
        return f"is not a field of the operation; {snake} is"
    return "is not a field of the operation"


def _is_a(value: JsonValue, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int):
        return kind in ("integer", "number")
    if isinstance(value, float):
        return kind == "number" or (kind == "integer" and value.is_integer())
    return {"string": str, "array": list, "object": dict}.get(kind) is type(value)


def _kind_of(value: JsonValue) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, float):
        return "a fraction"
    words = {int: "a number", str: "text", list: "a list", dict: "an object"}
    return words[type(value)]


def _range_problems(value: JsonValue, schema: Schema, path: str) -> Iterator[FieldViolation]:
    """Yields numbers that fit no message; other numbers are the rules' to judge."""
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, member in value.items():
            found = properties.get(name, others) if isinstance(properties, dict) else others
            if isinstance(found, dict):
                yield from _range_problems(member, found, joined(path, name))
    elif isinstance(value, list):
        items = schema["items"]
        if isinstance(items, dict) and items["type"] in ("integer", "number", "object"):
            for index, member in enumerate(value):
                yield from _range_problems(member, items, joined(path, index))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if schema["type"] == "integer" and not INT32_MIN <= value <= INT32_MAX:
            yield FieldViolation(path, f"must be between {schema['minimum']} and {schema['maximum']}")
        elif schema["type"] == "number" and not _fits_double(value):
            yield FieldViolation(path, "must be a number that fits 64 bits")


def _fits_double(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
