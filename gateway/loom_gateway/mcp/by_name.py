"""`loom_ops` and `loom_op`: operations that a toolset does not list, found and called by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import mcp_types as types
from pydantic import JsonValue

from loom_common.errors import FieldViolation, MalformedRequest, UnknownOp
from loom_gateway.contract.catalogue import Catalogue, PublicOp
from loom_gateway.contract.requests import RequestReader
from loom_gateway.contract.strict_json import parse_json_object, shown
from loom_gateway.mcp.toolsets import Toolset, callable_by_name, described, input_schema_in, listed, reader_in

LIST_TOOL: Final = "loom_ops"
CALL_TOOL: Final = "loom_op"

_LIST: Final = types.Tool(
    name=LIST_TOOL,
    title="Operations by name",
    description=(
        "Lists the operations that `loom_op` calls by name, each with one sentence. Name one to read how it is "
        "called: its whole description and the JSON Schema of its arguments. Use it when no tool of this list does "
        "what is asked."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "op": {
                "type": "string",
                "description": "Operation to describe in full, such as `memory.set_many`. Default: lists all.",
                "maxLength": 128,
            }
        },
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "operations": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "op": {"type": "string"},
                        "summary": {"type": "string"},
                        "role": {"type": "string"},
                        "read_only": {"type": "boolean"},
                        "tool": {"type": "string"},
                    },
                    "required": ["op", "summary", "role", "read_only", "tool"],
                },
            },
            "description": {"type": "string"},
            "input_schema": {"type": "object"},
        },
    },
    annotations=types.ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
)

_CALL: Final = types.Tool(
    name=CALL_TOOL,
    title="Operation by name",
    description=(
        "Calls an operation by its name, for what no tool of this list does. Read its arguments with `loom_ops` "
        "first. The token decides what may be called; some operations write or delete."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "op": {
                "type": "string",
                "description": "Name of the operation, such as `memory.set_many`.",
                "minLength": 1,
                "maxLength": 128,
            },
            # Text, because an object without fixed fields is what several clients refuse or send empty.
            "arguments": {
                "type": "string",
                "description": 'Its arguments as the text of one JSON object, such as `{"key": "a"}`. Default: none.',
            },
        },
        "required": ["op"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {"op": {"type": "string"}, "result": {"type": "object"}},
    },
    annotations=types.ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False
    ),
)


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A call of an operation by name, before its arguments are read."""

    op: PublicOp
    reader: RequestReader
    arguments: JsonValue

    def read_arguments(self) -> dict[str, JsonValue]:
        """Returns the arguments.

        Raises:
            MalformedRequest: They are not one JSON object, nor the text of one.
        """
        if isinstance(self.arguments, dict):
            return self.arguments
        if self.arguments is None:
            return {}
        if not isinstance(self.arguments, str):
            raise _wrong("arguments", "must be the text of one JSON object")
        try:
            return parse_json_object(self.arguments.encode("utf-8", "surrogatepass"))
        except MalformedRequest as error:
            raise MalformedRequest(f"arguments: {error.message}", fields=(_violation("arguments"),)) from None


class OpsByName:
    """The operations that one toolset lets a client call by name."""

    def __init__(self, catalogue: Catalogue, toolset: Toolset) -> None:
        self._toolset = toolset
        self._catalogue = catalogue
        self._callable = {op.name: op for op in catalogue.values() if callable_by_name(op.spec, toolset)}
        self._tools = {op.name: op.spec.mcp_name for op in listed(catalogue, toolset)}
        self._readers: dict[str, RequestReader] = {}

    @property
    def tools(self) -> tuple[types.Tool, ...]:
        """The two tools; none where nothing can be called by name."""
        return (_LIST, _CALL) if self._callable else ()

    def describe(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Returns the answer of `loom_ops`.

        Raises:
            MalformedRequest: An argument is unknown or has the wrong type.
            UnknownOp: The operation cannot be called by name here.
        """
        _check_fields(arguments, _LIST)
        named = arguments.get("op")
        if named is None or named == "":
            return {"operations": [self._row(op) for op in self._callable.values()]}
        op = self._find(named)
        return {
            "operations": [self._row(op)],
            "description": described(op.spec),
            "input_schema": dict(input_schema_in(op.spec, self._toolset)),
        }

    def call(self, arguments: Mapping[str, JsonValue]) -> NamedCall:
        """Returns what a call of `loom_op` names.

        Raises:
            MalformedRequest: An argument is unknown or has the wrong type.
            UnknownOp: The operation cannot be called by name here.
        """
        _check_fields(arguments, _CALL)
        op = self._find(arguments.get("op", ""))
        reader = self._readers.get(op.name)
        if reader is None:
            reader = self._readers[op.name] = reader_in(op, self._toolset)
        return NamedCall(op, reader, arguments.get("arguments"))

    def _find(self, name: JsonValue) -> PublicOp:
        if not isinstance(name, str):
            raise _wrong("op", "must be text")
        found = self._callable.get(name) or next(
            (self._callable[op] for op, tool in self._tools.items() if tool == name and op in self._callable), None
        )
        if found is not None:
            return found
        if name in self._catalogue:
            hint = " Search with `loom_search`." if name.endswith(".search") else ""
            raise UnknownOp(f"{name} is served over HTTP only, not over MCP.{hint}", detail={"op": shown(name)})
        raise UnknownOp(f"There is no operation {shown(name)!r}; `loom_ops` lists them.", detail={"op": shown(name)})

    def _row(self, op: PublicOp) -> JsonValue:
        spec = op.spec
        return {
            "op": op.name,
            "summary": spec.summary,
            "role": spec.role.value,
            "read_only": spec.read_only,
            "tool": self._tools.get(op.name, ""),
        }


def _check_fields(arguments: Mapping[str, JsonValue], tool: types.Tool) -> None:
    known = tool.input_schema["properties"]
    for name in arguments:
        if name not in known:
            raise _wrong(shown(name), f"is not a field of {tool.name}")


def _wrong(field: str, description: str) -> MalformedRequest:
    return MalformedRequest(f"{field}: {description}.", fields=(FieldViolation(field, description),))


def _violation(field: str) -> FieldViolation:
    return FieldViolation(field, "must be the text of one JSON object")
