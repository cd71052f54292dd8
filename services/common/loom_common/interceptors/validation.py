"""Refuses requests that break the contract's rules, before the service sees them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import protovalidate
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from loom_common.errors import FieldViolation, InvalidArgument, MalformedRequest
from loom_common.interceptors.errors import require_parsed
from loom_common.interceptors.rpc import Rpc, RpcInterceptor, Unparsable

# A new validator compiles every rule again, which takes milliseconds; this one is shared by all servers of a process.
_VALIDATOR: Final = protovalidate.Validator()

_MAX_NAMED: Final = 20


class ValidationInterceptor(RpcInterceptor):
    """Checks unknown fields, NUL characters and the rules on the fields of every request message."""

    async def on_request(self, rpc: Rpc, message: Message | Unparsable) -> None:
        """See `RpcInterceptor.on_request`."""
        check_message(require_parsed(message))


def check_message(message: Message) -> None:
    """Returns where the message keeps the contract's rules.

    Raises:
        MalformedRequest: It has fields that the contract does not know. A filter that this build does not know must
            not be dropped: the answer would be wider than what was asked for.
        InvalidArgument: A field breaks its rule; `fields` names each.
    """
    odd = not _is_plain(message)
    unknown = sorted(_unknown_fields(message, "")) if odd else []
    if unknown:
        named = ", ".join(unknown[:_MAX_NAMED])
        raise MalformedRequest(f"The request has unknown fields: {named}.", detail={"unknown_fields": named})
    nul = _fields_with_nul(message, "") if odd else ()
    violations = [FieldViolation(path, "must not hold NUL characters") for path in nul]
    violations += [
        FieldViolation(_path(violation.proto.field.elements if violation.proto.field else ()), violation.proto.message)
        for violation in _VALIDATOR.collect_violations(message)
    ]
    if violations:
        first = violations[0]
        more = f" ({len(violations) - 1} more)" if len(violations) > 1 else ""
        raise InvalidArgument(
            f"{first.field or 'The request'}: {first.description}{more}.",
            detail={"field": first.field} if first.field else {},
            fields=violations[:_MAX_NAMED],
        )


def _is_plain(message: Message) -> bool:
    """Returns whether there are surely neither unknown fields nor NUL characters; False for messages inside of it."""
    if len(UnknownFieldSet(message)):
        return False
    for field, value in message.ListFields():
        if field.message_type is not None:
            return False
        if field.type == FieldDescriptor.TYPE_STRING and any("\x00" in text for text in _texts(field, value)):
            return False
    return True


def _texts(field: FieldDescriptor, value: Any) -> Iterable[str]:
    return value if field.is_repeated else (value,)


def _unknown_fields(message: Message, path: str) -> Iterator[str]:
    unknown_fields = UnknownFieldSet(message)
    for place in range(len(unknown_fields)):
        unknown = unknown_fields[place]
        yield f"{path}{unknown.field_number}"
    for name, inner in _messages(message):
        yield from _unknown_fields(inner, f"{path}{name}.")


def _fields_with_nul(message: Message, path: str) -> Iterator[str]:
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            for place, text in enumerate(_texts(field, value)):
                if "\x00" in text:
                    yield f"{path}{field.name}[{place}]" if field.is_repeated else f"{path}{field.name}"
        elif _is_map(field):
            for key, item in value.items():
                if "\x00" in str(key) or (isinstance(item, str) and "\x00" in item):
                    yield f"{path}{field.name}"
    for name, inner in _messages(message):
        yield from _fields_with_nul(inner, f"{path}{name}.")


def _messages(message: Message) -> Iterator[tuple[str, Message]]:
    """Yields the messages inside a message, each with its path from there."""
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            continue
        if _is_map(field):
            yield from ((f"{field.name}[{key}]", item) for key, item in value.items() if isinstance(item, Message))
        elif field.is_repeated:
            yield from ((f"{field.name}[{place}]", item) for place, item in enumerate(value))
        else:
            yield field.name, value


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _path(elements: Iterable[protovalidate.FieldPathElementPb]) -> str:
    parts = []
    for element in elements:
        subscript = element.subscript
        parts.append(element.field_name if subscript is None else f"{element.field_name}[{subscript.value}]")
    return ".".join(parts)
