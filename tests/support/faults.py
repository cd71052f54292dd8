"""Faulty requests of every operation, made from the contract's descriptors: as JSON and as bytes on the gRPC wire."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from buf.validate import validate_pb2
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from loom_common.errors import Reason
from loom_common.ops import OpSpec

Json = dict[str, Any]

_PAIR: Final = {"one": "x", "other": "y"}
# The smallest good request of each operation; one without an entry needs nothing.
GOOD: Final[Mapping[str, Json]] = {
    "memory.set": {"value": "x", "key": "fault"},
    "memory.set_many": {"items": [{"value": "x", "key": "fault"}]},
    "memory.get": {"key": "fault"},
    "memory.delete": {"key": "fault"},
    "memory.history": {"key": "fault"},
    "erasure.user": {"user_id": "fault"},
    "erasure.redact": {"memories": [{"key": "fault"}]},
    "erasure.status": {"erasure_id": "none"},
    "memory.restore": {"key": "fault", "version": 1},
    "memory.inspect": {"key": "fault"},
    "memory.provenance": {"key": "fault"},
    "memory.feedback": {"key": "fault", "verdict": "useful"},
    "memory.resolve_conflict": {"conflict_id": "none", "resolution": "keep_both"},
    "memory.search": {"query": "x"},
    "search.query": {"query": "x"},
    "memory.set_from_messages": {"messages": [{"role": "user", "content": "x"}]},
    "memory.extraction": {"extraction_id": "none"},
    "memory.ask": {"question": "x"},
    "memory.brief": {"topic": "x"},
    "knowledge.ingest": {"documents": [{"source_uri": "fault.md", "text": "x"}]},
    "knowledge.search": {"query": "x"},
    "knowledge.get": {"source_uri": "fault.md"},
    "knowledge.outline": {"source_uri": "fault.md"},
    "knowledge.inspect": {"source_uri": "fault.md"},
    "knowledge.delete": {"source_uri": "fault.md"},
    "knowledge.synthesize": {"source_uris": ["kept.md"]},
    "context.offload": {"content": "x"},
    "context.fetch": {"blob_key": "none"},
    "profile.set_section": {"label": "fault", "value": "x"},
    "profile.history": {"label": "fault"},
    "conversation.append": {"turns": [{"text": "x"}]},
    "conversation.search": {"query": "x"},
    "conversation.get": {"conversation_id": "fault"},
    "conversation.list": {},
    "conversation.delete": {"conversation_id": "none"},
    "working_memory.set": {"session_id": "fault", "label": "fault", "value": "x"},
    "working_memory.get": {"session_id": "fault"},
    "working_memory.clear": {"session_id": "none"},
    "session.brief_save": {"session_id": "fault", "text": "x"},
    "session.brief_get": {},
    "runs.record": {"run_id": "fault"},
    "runs.list": {},
    "profile.schema_set": {"fields": [{"label": "city"}]},
    "procedure.save": {"situation": "fault", "body": "x", "procedure_id": "fault"},
    "procedure.get": {"procedure_id": "fault"},
    "procedure.match": {"situation": "x"},
    "procedure.delete": {"procedure_id": "none"},
    "procedure.record_outcome": {"procedure_id": "fault"},
    "insights.query": {"sql": "SELECT 1"},
    "help.search": {"query": "x"},
    "help.get": {"page": "README.md"},
    "assistant.ask": {"question": "x"},
    "token.create": {"namespaces": [{"namespace": "default", "role": "viewer"}]},
    "token.revoke": {"token_id": "none"},
    "token.exchange": {"org": "acme", "trust": "ci", "subject_token": "a.b.c"},
    "namespace.create": {"name": "faults"},
    "namespace.update": {"name": "faults"},
    "grants.set": {"subject": "sa:bot", "on_namespace": "default", "role": "viewer"},
    "grants.remove": {"subject": "sa:bot", "on_namespace": "default"},
    "org.create": {"name": "faults"},
    "org.update": {"display_name": "Faults"},
    "org.set_trust": {
        "name": "ci",
        "issuer": "https://issuer.example",
        "audience": "loom",
        "jwks_url": "https://issuer.example/jwks",
        "required_claims": [{"name": "repository", "values": ["acme/app"]}],
    },
    "org.remove_trust": {"name": "ci"},
    "org.set_account": {"subject": "sa:bot"},
    "org.set_model_calls": {"enabled": True},
    "code.calibrate": {"similar": [_PAIR] * 5, "distractors": [_PAIR] * 3},
}
SQL_TEXT: Final = "'); DROP TABLE memory; -- \" ` \\ {x:String} $(id) %00 1) UNION ALL SELECT * FROM system.tables"
MALFORMED, INVALID = Reason.MALFORMED_REQUEST, Reason.INVALID_ARGUMENT

# What CESU-8 writes for half of a surrogate pair; no UTF-8.
_HALF_SURROGATE: Final = b"\xed\xa0\x80"
_NESTED: Final = b"[" * 10_000 + b"]" * 10_000
# Longer than any field without a stated length may be.
_LONG: Final = 10_000
_THREE_MB: Final = "x" * 3_000_001
_VARINT, _BYTES = 0, 2


@dataclass(frozen=True)
class Fault:
    """One request that must be refused."""

    name: str
    body: bytes
    reason: Reason
    inside: bool = False
    """Whether it is a list's item that is wrong."""


def json_faults(spec: OpSpec, fields: Collection[str] | None = None) -> Iterator[Fault]:
    """Yields an operation's faults as JSON.

    Args:
        spec: The operation.
        fields: Fields that the transport shows; the others must be refused as unknown. None for all.
    """
    good = GOOD.get(spec.name, {})
    shown = [field for field in spec.request.fields if fields is None or field.name in fields]
    hidden = [field.name for field in spec.request.fields if field not in shown]
    for name in ("no_such_field", *hidden):
        yield Fault(f"unknown {name}", _json({**good, name: 1}), MALFORMED)
    yield Fault("malformed", b'{"org": ', MALFORMED)
    yield Fault("10,000 nested arrays", b'{"org": ' + _NESTED + b"}", MALFORMED)
    longest = _longest(shown)
    if longest is not None:
        yield Fault(f"{longest} has 3 MB", _json({**good, longest: _THREE_MB}), INVALID)
    for name, changed, reason in _json_changes(shown, good):
        yield Fault(name, _json(changed), reason)
    for field in _lists_of_messages(shown):
        item, *rest = good[field.name]
        yield Fault(f"{field.name}[0] is a number", _json({**good, field.name: [5, *rest]}), MALFORMED)
        strange = {**item, "z": 1}
        yield Fault(f"{field.name}[0] has an unknown field", _json({**good, field.name: [strange, *rest]}), MALFORMED)
        for name, changed, reason in _json_changes(_item_of(field).fields, item):
            yield Fault(f"{field.name}[0].{name}", _json({**good, field.name: [changed, *rest]}), reason, inside=True)


def grpc_faults(spec: OpSpec) -> Iterator[Fault]:
    """Yields an operation's faults as the bytes of a message."""
    good = GOOD.get(spec.name, {})
    yield Fault("bytes that are no message", b"\xff\xff\xff\xff", MALFORMED)
    yield Fault("cut short", _encoded(spec.request, good) + _tag(spec.request.fields[0], _BYTES) + b"\x7f", MALFORMED)
    longest = _longest(spec.request.fields)
    if longest is not None:
        yield Fault(f"{longest} has 3 MB", _encoded(spec.request, {**good, longest: _THREE_MB}), INVALID)
    for name, body, reason in _wire_changes(spec.request, good):
        yield Fault(name, body, reason)
    for field in _lists_of_messages(spec.request.fields):
        item, *others = good[field.name]
        rest = _encoded(spec.request, {**good, field.name: others})
        for name, body, reason in _wire_changes(_item_of(field), item):
            yield Fault(f"{field.name}[{len(others)}].{name}", rest + _nested(field, body), reason, inside=True)


def encoded(spec: OpSpec, body: Mapping[str, Any]) -> bytes:
    """Returns a request as the bytes of its message."""
    return _encoded(spec.request, body)


def text_fields(fields: Iterable[FieldDescriptor]) -> list[FieldDescriptor]:
    """Returns the fields that hold one text each."""
    return [field for field in fields if field.type == field.TYPE_STRING and not field.is_repeated]


def takes_text(field: FieldDescriptor, text: str) -> bool:
    """Returns whether a field's rule takes a text, so far as it looks at more than the text's kind."""
    rule = _rule(field).string
    return not (rule.pattern or getattr(rule, "in")) and len(text) <= _longest_text(field)


def _json_changes(fields: Iterable[FieldDescriptor], good: Json) -> Iterator[tuple[str, Json, Reason]]:
    """Yields what is wrong with single fields: what it is, the whole object, the reason of its refusal."""
    for field in fields:
        name = field.name
        if _is_required(field):
            yield f"{name} missing", {key: value for key, value in good.items() if key != name}, INVALID
        for value in _wrong_types(field):
            yield f"{name} is {value!r}", {**good, name: value}, MALFORMED
        for label, value in _bad_values(field):
            yield f"{name} {label}", {**good, name: value}, INVALID
        if field.type == field.TYPE_STRING:
            value = "a\ud800b"
            yield f"{name} has half a surrogate", {**good, name: [value] if field.is_repeated else value}, INVALID


def _wire_changes(message: Descriptor, good: Json) -> Iterator[tuple[str, bytes, Reason]]:
    """Yields what is wrong with single fields: what it is, the message's bytes, the reason of its refusal."""
    whole = _encoded(message, good)
    # What a newer or a careless client sends; a filter that is passed over would widen the answer.
    yield "unknown field", whole + _number_tag(1000, _VARINT) + b"\x01", MALFORMED
    for field in message.fields:
        name = field.name
        rest = {key: value for key, value in good.items() if key != name}
        if _is_required(field):
            yield f"{name} missing", _encoded(message, rest), INVALID
        texts = field.type in (field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE)
        wrong = _tag(field, _VARINT) + b"\x05" if texts else _tag(field, _BYTES) + b"\x01\x05"
        yield f"{name} has another wire type", _encoded(message, rest) + wrong, MALFORMED
        for label, value in _bad_values(field):
            yield f"{name} {label}", _encoded(message, {**good, name: value}), INVALID
        if field.type == field.TYPE_STRING:
            yield f"{name} is no UTF-8", whole + _nested(field, _HALF_SURROGATE), MALFORMED


def _wrong_types(field: FieldDescriptor) -> list[Any]:
    if field.is_repeated:
        return [5, "x", None, [5] if field.type == field.TYPE_STRING else {}]
    wrong: dict[int, list[Any]] = {
        field.TYPE_STRING: [5, ["x"], None],
        field.TYPE_BYTES: [5, ["x"], None],
        field.TYPE_INT32: ["5", 1.5, None],
        field.TYPE_DOUBLE: ["5", None],
        field.TYPE_BOOL: ["true", 1, None],
        field.TYPE_MESSAGE: [5, "x", None],
    }
    return wrong[field.type]


def _bad_values(field: FieldDescriptor) -> Iterator[tuple[str, Any]]:
    """Yields values of the right type that break the field's rule, each with what is wrong."""
    rule = _rule(field)
    if field.is_repeated:
        if rule.repeated.min_items:
            yield "empty", []
        if field.type == field.TYPE_STRING:
            yield "has too many items", ["x"] * (rule.repeated.max_items + 1)
            yield "has NUL", ["a\0b"]
            yield "has an empty item", [""]
            yield "has an item too long", ["x" * (rule.repeated.items.string.max_len + 1)]
    elif field.type == field.TYPE_STRING:
        yield "has NUL", "a\0b"
        yield "too long", "x" * (_longest_text(field) + 1)
        if rule.string.min_len:
            yield "empty", ""
    elif field.type == field.TYPE_INT32:
        yield "too small", rule.int32.gte - 1
        if rule.int32.HasField("lte"):
            yield "too large", rule.int32.lte + 1
    elif field.type == field.TYPE_DOUBLE:
        yield "too small", rule.double.gte - 0.5
        yield "too large", rule.double.lte + 0.5


def _longest(fields: Iterable[FieldDescriptor]) -> str | None:
    """Returns the text field that takes the longest texts, or None where there is none."""
    texts = text_fields(fields)
    return max(texts, key=_longest_text).name if texts else None


def _longest_text(field: FieldDescriptor) -> int:
    rule = _rule(field).string
    return rule.max_len or rule.max_bytes or _LONG


def _lists_of_messages(fields: Iterable[FieldDescriptor]) -> list[FieldDescriptor]:
    return [field for field in fields if field.type == field.TYPE_MESSAGE and field.is_repeated]


def _item_of(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None  # a list of messages
    return field.message_type


def _rule(field: FieldDescriptor) -> validate_pb2.FieldRules:
    return field.GetOptions().Extensions[validate_pb2.field]


def _is_required(field: FieldDescriptor) -> bool:
    rule = _rule(field)
    return rule.required or rule.repeated.min_items > 0


def _json(body: Json) -> bytes:
    return json.dumps(body).encode()


def _encoded(message: Descriptor, body: Mapping[str, Any]) -> bytes:
    return json_format.ParseDict(dict(body), message_factory.GetMessageClass(message)()).SerializeToString()


def _nested(field: FieldDescriptor, body: bytes) -> bytes:
    return _tag(field, _BYTES) + _varint(len(body)) + body


def _tag(field: FieldDescriptor, wire_type: int) -> bytes:
    return _number_tag(field.number, wire_type)


def _number_tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
