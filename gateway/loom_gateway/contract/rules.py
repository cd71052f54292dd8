"""The value rules of one field of the contract, as keywords of JSON Schema.

Every keyword here is implied by the rule it comes from: what the schema refuses, the service refuses too. A rule that
JSON Schema cannot say, such as a limit in bytes, is told by the field's comment and checked all the same.
"""

from typing import Final

from buf.validate import validate_pb2
from google.protobuf.descriptor import FieldDescriptor
from pydantic import JsonValue

Keywords = dict[str, JsonValue]

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
WHOLE_TYPES: Final = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32)
"""Types of whole numbers that public messages may hold; 64-bit ones would be text in JSON."""


def field_rules(field: FieldDescriptor) -> validate_pb2.FieldRules:
    """Returns the rules on a field; empty ones where it has none."""
    return field.GetOptions().Extensions[validate_pb2.field]


def is_required(field: FieldDescriptor) -> bool:
    """Returns whether a request without the field is refused."""
    rules = field_rules(field)
    return rules.required or bool(field.is_repeated and rules.repeated.min_items)


def list_keywords(rules: validate_pb2.FieldRules) -> Keywords:
    """Returns the keywords of a list: how many items it may have."""
    repeated = rules.repeated
    found: Keywords = {}
    if repeated.min_items or rules.required:
        found["minItems"] = max(1, repeated.min_items)
    if repeated.HasField("max_items"):
        found["maxItems"] = repeated.max_items
    if repeated.unique:
        found["uniqueItems"] = True
    return found


def value_keywords(field: FieldDescriptor, rules: validate_pb2.FieldRules) -> Keywords:
    """Returns the keywords of one value of the field's type."""
    if field.type == FieldDescriptor.TYPE_STRING:
        return _string_keywords(rules.string, required=rules.required)
    if field.type in WHOLE_TYPES:
        return _whole_keywords(rules)
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return _double_keywords(rules.double)
    return {}


def _string_keywords(rules: validate_pb2.StringRules, *, required: bool) -> Keywords:
    found: Keywords = {}
    if rules.min_len or required:
        # A string without presence that is empty counts as absent.
        found["minLength"] = max(1, rules.min_len)
    limits = [getattr(rules, name) for name in ("max_len", "max_bytes") if rules.HasField(name)]
    if limits:
        # A character takes at least one byte.
        found["maxLength"] = min(limits)
    if rules.pattern:
        found["pattern"] = rules.pattern
    if words := getattr(rules, "in"):
        found["enum"] = list(words)
    return found


def _whole_keywords(rules: validate_pb2.FieldRules) -> Keywords:
    low, high = INT32_MIN, INT32_MAX
    kind = rules.WhichOneof("type")
    if kind is None:
        return {"minimum": low, "maximum": high}
    ruled = getattr(rules, kind)
    if ruled.HasField("gte"):
        low = max(low, ruled.gte)
    if ruled.HasField("gt"):
        low = max(low, ruled.gt + 1)
    if ruled.HasField("lte"):
        high = min(high, ruled.lte)
    if ruled.HasField("lt"):
        high = min(high, ruled.lt - 1)
    return {"minimum": low, "maximum": high}


def _double_keywords(rules: validate_pb2.DoubleRules) -> Keywords:
    found: Keywords = {}
    if rules.HasField("gte"):
        found["minimum"] = rules.gte
    if rules.HasField("gt"):
        found["exclusiveMinimum"] = rules.gt
    if rules.HasField("lte"):
        found["maximum"] = rules.lte
    if rules.HasField("lt"):
        found["exclusiveMaximum"] = rules.lt
    return found
