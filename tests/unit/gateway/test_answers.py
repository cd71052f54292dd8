"""Answers as JSON, against protobuf's own way of writing them."""

import random
from typing import Any

import pytest
from google.protobuf import json_format, message_factory, struct_pb2
from google.protobuf.descriptor import FieldDescriptor

from loom.insights.v1 import insights_pb2
from loom_common.ops import OpSpec
from loom_gateway.contract.answers import encode, render
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.contract.schema import is_map

CATALOGUE = Catalogue()
OPS = [op.spec for op in (*CATALOGUE.values(), *CATALOGUE.streams.values())]
VALUES: dict[int, list[Any]] = {
    FieldDescriptor.CPPTYPE_STRING: ["", "text", "\u00e9\u65e5", "a\x00\n"],
    FieldDescriptor.CPPTYPE_BOOL: [False, True],
    FieldDescriptor.CPPTYPE_INT32: [0, 1, -(2**31), 2**31 - 1],
    FieldDescriptor.CPPTYPE_DOUBLE: [0.0, 1.0, -0.5, 1e300, 0.1, float("nan"), float("inf"), float("-inf")],
}


def fill(message: Any, chance: random.Random, depth: int = 0) -> Any:
    """Sets some of a message's fields."""
    for field in message.DESCRIPTOR.fields:
        # Values of any kind have a test of their own.
        if chance.random() < 0.4 or (field.message_type and field.message_type.full_name.startswith("google.")):
            continue
        held = getattr(message, field.name)
        if is_map(field):
            value = field.message_type.fields_by_name["value"]
            for key in chance.sample(["", "a", "b\u00e9"], chance.randint(0, 3)):
                if value.message_type is not None:
                    fill(held[key], chance, depth + 1)
                else:
                    held[key] = _one(value, chance)
        elif field.is_repeated:
            for _ in range(chance.randint(0, 3)):
                if field.message_type is not None:
                    fill(held.add(), chance, depth + 1)
                else:
                    held.append(_one(field, chance))
        elif field.message_type is not None:
            held.SetInParent()
            fill(held, chance, depth + 1)
        else:
            setattr(message, field.name, _one(field, chance))
    return message


def _one(field: FieldDescriptor, chance: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return b"\x00\xff"
    return chance.choice(VALUES[field.cpp_type])


@pytest.mark.parametrize("spec", OPS, ids=lambda spec: spec.name)
def test_an_answer_is_shown_as_protobuf_itself_shows_it(spec: OpSpec) -> None:
    chance = random.Random(spec.name)
    make = message_factory.GetMessageClass(spec.response)
    for message in (make(), *(fill(make(), chance) for _ in range(10))):
        expected = json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        found = render(message)
        # As text, so that the order, and 1 and 1.0, count too.
        assert encode(found) == encode(expected)


def test_values_of_any_kind_are_shown_as_what_they_hold_and_whole_numbers_without_a_fraction() -> None:
    row = struct_pb2.ListValue()
    row.extend([1.0, -0.5, "text", True, None, [2.0, []], {"k": [3.0]}, 1e300])
    found = render(insights_pb2.RunQueryResponse(rows=[row], arrow=b"\x00\xff"))
    assert encode(found["rows"]) == b'[[1,-0.5,"text",true,null,[2,[]],{"k":[3]},1e+300]]'
    assert found["arrow"] == "AP8="
