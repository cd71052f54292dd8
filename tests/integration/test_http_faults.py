"""Every public operation against every fault of a request, made from the contract."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from support.gateway import GatewayUnderTest, gateway

from loom_common.ops import OpRole, OpSpec
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.contract.schema import request_schema

__all__ = ["gateway"]

SQL = "'; DROP TABLE memory; -- \" ` \\ {x:String} %00 $(id) <script>"
OPS = [op.spec for op in Catalogue().values()]


@dataclass(frozen=True)
class Fault:
    name: str
    body: bytes
    reasons: frozenset[str]
    """Reasons that are right; empty where the request is good and may be answered."""
    field: str = ""


# What a rule over several fields asks for, which no schema of one field shows.
ACROSS_FIELDS: dict[str, dict[str, Any]] = {"code.calibrate": {"reset": True}}


def valid(spec: OpSpec) -> dict[str, Any]:
    """Returns the smallest request that the schema takes."""
    return {**smallest(request_schema(spec.request)), **ACROSS_FIELDS.get(spec.name, {})}


def smallest(schema: Any) -> Any:
    kind = schema["type"]
    if "enum" in schema:
        return schema["enum"][0]
    if kind == "object":
        return {name: smallest(schema["properties"][name]) for name in schema.get("required", [])}
    if kind == "array":
        return [smallest(schema["items"])] * schema.get("minItems", 0)
    return {"string": "x" * schema.get("minLength", 0), "integer": schema.get("minimum", 0), "boolean": True}.get(
        kind, 0.5
    )


def faults(spec: OpSpec) -> Iterator[Fault]:
    schema: Any = request_schema(spec.request)
    base = valid(spec)
    malformed, invalid = frozenset({"MALFORMED_REQUEST"}), frozenset({"INVALID_ARGUMENT"})

    def fault(name: str, changed: dict[str, Any], reasons: frozenset[str], field: str = "") -> Fault:
        return Fault(name, json.dumps({**base, **changed}).encode(), reasons, field)

    yield fault("unknown field", {"no_such_field": 1}, malformed, "no_such_field")
    yield Fault("not JSON", b'{"a": ', malformed)
    yield Fault("10,000 nested arrays", b"[" * 10_000 + b"]" * 10_000, malformed)
    yield Fault("a nested value", b'{"org": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", malformed)
    yield Fault("no object", b"[]", malformed)
    yield Fault("a key twice", b'{"org": "acme", "org": "other"}', malformed)
    yield Fault("above 4 MiB", b'{"org": "' + b"x" * (4 * 1024 * 1024) + b'"}', frozenset({"PAYLOAD_TOO_LARGE"}))
    for name in schema.get("required", []):
        rest = {key: value for key, value in base.items() if key != name}
        yield Fault(f"without {name}", json.dumps(rest).encode(), invalid, name)
    for field in spec.request.fields:
        yield from field_faults(fault, field, schema["properties"][field.name], malformed, invalid)


def field_faults(fault: Any, field: FieldDescriptor, schema: Any, malformed: Any, invalid: Any) -> Iterator[Fault]:
    name = field.name
    wrong: list[Any] = [{"x": 1}, None, 1 if schema["type"] in ("string", "array", "boolean") else "5"]
    inside = f"{name}.x" if schema["type"] == "object" else name
    places = [inside, name, name]
    yield from (
        fault(f"{name} is {value!r}", {name: value}, malformed, place)
        for value, place in zip(wrong, places, strict=True)
    )
    if (camel := "".join(part.title() if place else part for place, part in enumerate(name.split("_")))) != name:
        yield fault(f"{name} in camel case", {camel: "x"}, malformed, camel)
    if schema["type"] == "string":
        yield fault(f"NUL in {name}", {name: "a\x00b"}, invalid, name)
        yield fault(f"a half surrogate in {name}", {name: "a\ud800"}, invalid, name)
        yield fault(f"3 MB in {name}", {name: "x" * 3_000_001}, invalid, name)
        if "maxLength" in schema:
            yield fault(f"{name} too long", {name: "x" * (schema["maxLength"] + 1)}, invalid, name)
        if schema.get("minLength"):
            yield fault(f"{name} empty", {name: ""}, invalid, name)
        fits = "enum" not in schema and "pattern" not in schema
        # The organisation and the namespace are refused by the service, which knows what the token may do.
        allowed = frozenset({"AUTH_INSUFFICIENT", "NOT_FOUND"}) if name in ("org", "namespace") else frozenset()
        yield fault(f"SQL in {name}", {name: SQL}, allowed if fits else invalid, "" if fits else name)
    if schema["type"] == "integer":
        yield fault(f"{name} beyond 32 bits", {name: 2**40}, invalid, name)
        yield fault(f"{name} below its least", {name: schema["minimum"] - 1}, invalid, name)
        yield fault(f"{name} a fraction", {name: 1.5}, malformed, name)
    if schema["type"] == "array" and schema["items"]["type"] == "string":
        yield fault(f"NUL in {name}[0]", {name: ["\x00"]}, invalid, f"{name}[0]")
        yield fault(f"a half surrogate in {name}[0]", {name: ["\udfff"]}, invalid, f"{name}[0]")
        yield fault(f"{name} with too many items", {name: ["x"] * (schema["maxItems"] + 1)}, invalid, name)


@pytest.mark.parametrize("spec", OPS, ids=lambda spec: spec.name)
async def test_every_fault_of_a_request_is_answered_with_its_reason_and_reaches_no_service(
    gateway: GatewayUnderTest, spec: OpSpec
) -> None:
    token = gateway.token(org_admin=True)
    count = 0
    async with gateway.client(token, **{"Content-Type": "application/json"}) as client:
        for fault in faults(spec):
            if spec.role is OpRole.OPEN and fault.name == "SQL in org":
                continue  # without a token there is no organisation that it could differ from
            before = len(gateway.services.seen)
            answer = await client.post(f"/v1/{spec.name}", content=fault.body)
            count += 1
            assert answer.status_code < 500, (fault.name, answer.text)
            if not fault.reasons:
                assert answer.status_code == 200, (fault.name, answer.text)
                continue
            error = answer.json()["error"]
            assert error["code"] in fault.reasons, (fault.name, error)
            if fault.field:
                assert fault.field in [found["field"] for found in error["detail"]["fields"]], (fault.name, error)
            assert len(gateway.services.seen) == before, fault.name
    assert count > 10
    assert len(gateway.ledger.entries) == count


@pytest.mark.parametrize("spec", OPS, ids=lambda spec: spec.name)
async def test_the_smallest_good_request_is_answered(gateway: GatewayUnderTest, spec: OpSpec) -> None:
    async with gateway.client(gateway.token(org_admin=True)) as client:
        answer = await client.post(f"/v1/{spec.name}", json=valid(spec))
    assert answer.status_code == 200, answer.text
