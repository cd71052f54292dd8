"""The schemas that callers are shown, against the checks that requests pass."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_common.errors import InvalidArgument, LoomError, MalformedRequest, Reason
from loom_common.ops import OpSpec, all_ops
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.contract.requests import RequestReader
from loom_gateway.contract.schema import UnshowableMessage, request_schema, response_schema

OPS = [op.spec for op in Catalogue().values()]


def requests_of(schema: Any) -> st.SearchStrategy[Any]:
    """Returns values that often fit a schema, and often nearly."""
    kind = schema["type"]
    odd = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just([]), st.just({}))
    if "enum" in schema:
        good: st.SearchStrategy[Any] = st.sampled_from(schema["enum"])
    elif kind == "string":
        good = st.text(max_size=6) | st.sampled_from(["note", "team-a", "x" * 200, "a\x00", "a\ud800", "a\n", ""])
    elif kind == "integer":
        edges = {schema["minimum"], schema["maximum"]}
        good = st.sampled_from([*edges, *(edge - 1 for edge in edges), *(edge + 1 for edge in edges), 2**40, 1.0])
    elif kind == "number":
        good = st.floats(allow_nan=False) | st.sampled_from([0, 1, 2, -1, 10**400])
    elif kind == "boolean":
        good = st.booleans()
    elif kind == "array":
        good = st.lists(requests_of(schema["items"]), max_size=3)
    else:
        good = st.fixed_dictionaries(
            {}, optional={name: requests_of(member) for name, member in schema["properties"].items()} | {"odd": odd}
        )
    return good | odd if kind != "object" else good


def _is_structural(error: jsonschema.ValidationError) -> bool:
    return error.validator in ("type", "additionalProperties")


@pytest.mark.parametrize("spec", OPS, ids=lambda spec: spec.name)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_request_is_malformed_where_the_shown_schema_says_so_and_whatever_the_schema_refuses_is_refused(
    spec: OpSpec, data: st.DataObject
) -> None:
    schema = request_schema(spec.request)
    sent = data.draw(requests_of(schema))
    found = list(jsonschema.Draft202012Validator(schema).iter_errors(sent))
    refusal = _refusal(RequestReader(spec.request), sent)
    assert isinstance(refusal, MalformedRequest) is any(_is_structural(error) for error in found)
    if refusal is None:
        # Items that are checked one by one are the service's to refuse.
        assert [error for error in found if "items" not in error.absolute_path] == []
    else:
        assert refusal.fields


def _refusal(reader: RequestReader, sent: Any) -> LoomError | None:
    try:
        reader.read(sent)
    except (MalformedRequest, InvalidArgument) as error:
        return error
    return None


@pytest.mark.parametrize(
    "spec", [spec for spec in all_ops().values() if spec.name in Catalogue()], ids=lambda s: s.name
)
def test_every_schema_is_valid_and_takes_what_every_client_takes(spec: OpSpec) -> None:
    for schema in (request_schema(spec.request), response_schema(spec.response)):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        text = json.dumps(schema)
        assert not any(f'"{word}":' in text for word in ("anyOf", "oneOf", "allOf", "$ref", "$defs"))
    assert request_schema(spec.request)["additionalProperties"] is False


@pytest.mark.parametrize("spec", OPS, ids=lambda spec: spec.name)
def test_every_field_of_a_request_is_described(spec: OpSpec) -> None:
    properties: Any = request_schema(spec.request)["properties"]
    assert [name for name, member in properties.items() if not member.get("description")] == []


def test_a_field_names_its_limits() -> None:
    properties: Any = request_schema(Catalogue()["memory.search"].spec.request)["properties"]
    assert (properties["top_k"]["minimum"], properties["top_k"]["maximum"]) == (1, 100)
    assert properties["search_mode"]["enum"] == ["hybrid", "vector", "lexical"]
    assert properties["tags"]["items"]["maxLength"] == 64
    assert request_schema(Catalogue()["memory.search"].spec.request)["required"] == ["query"]


def test_a_64_bit_number_cannot_be_shown() -> None:
    internal = next(spec for spec in all_ops().values() if spec.name == "status.get")
    with pytest.raises(UnshowableMessage):
        response_schema(internal.response)


def _reason(spec: str, **arguments: Any) -> Reason:
    with pytest.raises(LoomError) as caught:
        Catalogue()[spec].reader.read(arguments)
    return caught.value.reason


def test_a_wrong_form_comes_before_a_broken_rule() -> None:
    assert _reason("memory.set", value="", tags=5) is Reason.MALFORMED_REQUEST
    assert _reason("memory.set", value="") is Reason.INVALID_ARGUMENT


def test_a_camel_case_name_is_refused_and_the_right_one_named() -> None:
    with pytest.raises(MalformedRequest) as caught:
        Catalogue()["memory.set"].reader.read({"value": "x", "userId": "u"})
    assert "user_id" in caught.value.fields[0].description


def test_what_a_toolset_forces_hides_or_drops_is_done() -> None:
    request = Catalogue()["search.query"].spec.request
    reader = RequestReader(request, hidden={"org"}, dropped={"namespace"}, forced={"namespace_scope": "this"})
    read: Any = reader.read({"query": "q", "namespace": 5, "namespace_scope": "all_mine"})
    assert (read.namespace, read.namespace_scope) == ("", "this")
    with pytest.raises(MalformedRequest):
        reader.read({"query": "q", "org": "acme"})
