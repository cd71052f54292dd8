"""Operations called by name: which, how, and with what arguments."""

from typing import Any

import pytest

from loom_common.errors import LoomError, MalformedRequest, UnknownOp
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.mcp.by_name import OpsByName
from loom_gateway.mcp.toolsets import Toolset

CATALOGUE = Catalogue()
OPS = OpsByName(CATALOGUE, Toolset.DEFAULT)


def names(ops: OpsByName) -> set[str]:
    rows: Any = ops.describe({})["operations"]
    return {row["op"] for row in rows}


def test_every_operation_but_those_of_http_alone_can_be_called() -> None:
    hidden = {name for name, op in CATALOGUE.items() if op.spec.http_only}
    assert "memory.search" in hidden
    assert names(OPS) == set(CATALOGUE) - hidden


def test_the_assistant_calls_nothing_by_name() -> None:
    ops = OpsByName(CATALOGUE, Toolset.ASSISTANT)
    assert ops.tools == ()
    with pytest.raises(UnknownOp):
        ops.call({"op": "memory.set"})


@pytest.mark.parametrize("name", sorted(name for name, op in CATALOGUE.items() if op.spec.http_only))
def test_an_operation_of_http_alone_is_refused_with_where_it_is(name: str) -> None:
    for refused in (lambda: OPS.call({"op": name}), lambda: OPS.describe({"op": name})):
        with pytest.raises(UnknownOp) as caught:
            refused()
        assert "HTTP" in caught.value.message


def test_one_operation_is_described_as_this_toolset_takes_it() -> None:
    found: Any = OPS.describe({"op": "search.query"})
    assert set(found["input_schema"]["properties"]) == {"query", "top_k", "tags", "bodies", "recipe", "page", "explain"}
    assert found["operations"][0]["tool"] == "loom_search"
    assert "Errors:" not in found["description"]


def test_a_tools_name_names_its_operation() -> None:
    assert OPS.call({"op": "loom_search"}).op.name == "search.query"


@pytest.mark.parametrize("arguments", [{"key": "k"}, '{"key": "k"}'])
def test_arguments_are_an_object_or_its_text(arguments: Any) -> None:
    assert OPS.call({"op": "memory.get", "arguments": arguments}).read_arguments() == {"key": "k"}


@pytest.mark.parametrize("arguments", [None, ""])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    assert OPS.call({"op": "memory.list", "arguments": arguments}).read_arguments() == {}


@pytest.mark.parametrize("arguments", ["[]", "{", '{"a": 1, "a": 2}', "null", 5, [], True, '"\ud800"'])
def test_other_arguments_are_malformed(arguments: Any) -> None:
    with pytest.raises(MalformedRequest) as caught:
        OPS.call({"op": "memory.get", "arguments": arguments}).read_arguments()
    assert [found.field for found in caught.value.fields] == ["arguments"]


@pytest.mark.parametrize("arguments", [{"op": "no.such"}, {"op": 5}, {}, {"op": "memory.get", "more": 1}, {"op": ""}])
def test_a_call_that_names_nothing_callable_is_refused(arguments: Any) -> None:
    with pytest.raises(LoomError):
        OPS.call(arguments)


def test_org_is_nobodys_to_name_here_either() -> None:
    call = OPS.call({"op": "memory.get", "arguments": {"key": "k", "org": "other"}})
    with pytest.raises(MalformedRequest):
        call.reader.read(call.read_arguments())
