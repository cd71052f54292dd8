"""Which operations are tools, and what each toolset makes of their arguments."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from loom_common import ops
from loom_common.errors import InvalidArgument
from loom_common.ops import ForcedAction, OpSpec
from loom_gateway.contract.catalogue import Catalogue, PublicOp
from loom_gateway.contract.requests import RequestReader
from loom_gateway.contract.schema import Schema, request_schema, response_schema
from loom_gateway.contract.strict_json import shown
from loom_gateway.mcp.lean import lean_schema

if TYPE_CHECKING:
    import mcp_types as types


class Toolset(StrEnum):
    """Named selections of tools, as a client asks for them."""

    DEFAULT = "default"
    CODING = "coding"
    ASSISTANT = "assistant"
    ADMIN = "admin"
    ALL = "all"

    @property
    def contract(self) -> ops.Toolset:
        """The toolset of the contract whose rules on arguments hold."""
        return ops.Toolset.DEFAULT if self is Toolset.ALL else ops.Toolset(self.value)


# The token says which organisation it is of; a model that may name one can only get it wrong.
_ALWAYS_HIDDEN: Final = frozenset({"org"})
_SEARCH: Final = "loom_search"
# Verbs of operations that take something away; a new version of a memory keeps the old one.
_DESTRUCTIVE_VERBS: Final = frozenset({"delete", "remove", "revoke", "redact"})
# Named by what it takes away and not by a verb.
_ERASES: Final = "erasure.user"


@dataclass(frozen=True, slots=True)
class BoundTool:
    """One operation as a tool of one toolset."""

    op: PublicOp
    tool: "types.Tool"
    reader: RequestReader


def toolset_named(name: str) -> Toolset:
    """Returns the toolset of a name.

    Raises:
        InvalidArgument: There is none of that name.
    """
    try:
        return Toolset(name.strip().lower())
    except ValueError:
        allowed = ", ".join(Toolset)
        raise InvalidArgument.of("toolset", f"must be one of {allowed}, not {shown(name)!r}") from None


def tools_of(catalogue: Catalogue, toolset: Toolset) -> Mapping[str, BoundTool]:
    """Returns the tools of a toolset by name, in the order of the contract."""
    bound = [BoundTool(op, _tool(op.spec, toolset), reader_in(op, toolset)) for op in listed(catalogue, toolset)]
    # What answers a question first stands first: clients show long lists cut short.
    bound.sort(key=lambda tool: tool.op.spec.mcp_name != _SEARCH)
    return MappingProxyType({tool.tool.name: tool for tool in bound})


def _is_listed(spec: OpSpec, toolset: Toolset) -> bool:
    if spec.stability is ops.Stability.EXPERIMENTAL and toolset is not Toolset.ASSISTANT:
        return False
    if toolset is Toolset.ALL:
        return not spec.http_only
    return toolset.contract in spec.toolsets


def listed(catalogue: Catalogue, toolset: Toolset) -> list[PublicOp]:
    """Returns the operations that a toolset lists as tools, in the order of the contract."""
    return [op for op in catalogue.values() if _is_listed(op.spec, toolset)]


def callable_by_name(spec: OpSpec, toolset: Toolset) -> bool:
    """Returns whether a client of a toolset may call an operation that it is not shown."""
    if toolset is Toolset.ASSISTANT:
        return False  # its roster is a bound, not a selection: an answer reads, and does nothing else
    return not spec.http_only


def reader_in(op: PublicOp, toolset: Toolset) -> RequestReader:
    """Returns the reader of an operation's arguments as a toolset lets them be written."""
    forced = op.spec.forced_in(toolset.contract)
    by_action = _by_action(op.spec, toolset)
    return RequestReader(
        op.spec.request,
        hidden=_refused(op.spec, toolset),
        dropped=by_action[ForcedAction.DROP],
        forced={arg.field: json.loads(arg.value) for arg in forced if arg.action is ForcedAction.SET},
    )


def input_schema_in(spec: OpSpec, toolset: Toolset) -> Schema:
    """Returns the schema of an operation's arguments as a toolset shows them."""
    by_action = _by_action(spec, toolset)
    unseen = _refused(spec, toolset) | by_action[ForcedAction.DROP] | by_action[ForcedAction.SET]
    return request_schema(spec.request, hidden=unseen)


def described(spec: OpSpec) -> str:
    """Returns an RPC's comment without the paragraph that lists its errors: a model is told each as it meets it."""
    return "\n".join(line for line in spec.description.split("\n") if not line.startswith("Errors:"))


def _by_action(spec: OpSpec, toolset: Toolset) -> dict[ForcedAction, set[str]]:
    forced = spec.forced_in(toolset.contract)
    return {action: {arg.field for arg in forced if arg.action is action} for action in ForcedAction}


def _refused(spec: OpSpec, toolset: Toolset) -> set[str]:
    return (set(spec.request.fields_by_name) & _ALWAYS_HIDDEN) | _by_action(spec, toolset)[ForcedAction.HIDE]


def _tool(spec: OpSpec, toolset: Toolset) -> "types.Tool":
    import mcp_types as types  # here: settings name toolsets, and the models of messages take half a second to load

    return types.Tool(
        name=spec.mcp_name,
        title=spec.name,
        description=described(spec),
        input_schema=input_schema_in(spec, toolset),
        output_schema=_output_schema(spec),
        annotations=types.ToolAnnotations(
            read_only_hint=spec.read_only,
            destructive_hint=_verb(spec) in _DESTRUCTIVE_VERBS or spec.name == _ERASES,
            idempotent_hint=spec.idempotent,
            open_world_hint=False,
        ),
    )


def _verb(spec: OpSpec) -> str:
    """Returns what an operation does: `remove` of `org.remove_trust`."""
    return spec.name.rpartition(".")[2].partition("_")[0]


def _output_schema(spec: OpSpec) -> Schema:
    """Returns the schema of a tool's structured content.

    No member of the root is required: some clients hold the structured content of an error to this schema too, and
    that is an object with `error` alone.
    """
    schema = response_schema(spec.response, described=False)
    if spec.mcp_name == _SEARCH:
        return lean_schema(schema)
    schema.pop("required", None)
    return schema
