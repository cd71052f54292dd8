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
# Verbs of operations that take something away; a new version of a memory keeps the old one.
_DESTRUCTIVE_VERBS: Final = frozenset({"delete", "remove", "revoke", "redact"})


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
    bound = [_bound(op, toolset) for op in catalogue.values() if _is_listed(op.spec, toolset)]
    # What answers a question first stands first: clients show long lists cut short.
    bound.sort(key=lambda tool: tool.op.spec.mcp_name != "loom_search")
    return MappingProxyType({tool.tool.name: tool for tool in bound})


def _is_listed(spec: OpSpec, toolset: Toolset) -> bool:
    if spec.stability is ops.Stability.EXPERIMENTAL:
        return False
    if toolset is Toolset.ALL:
        return not spec.http_only
    return toolset.contract in spec.toolsets


def _bound(op: PublicOp, toolset: Toolset) -> BoundTool:
    spec = op.spec
    forced = spec.forced_in(toolset.contract)
    by_action = {action: {arg.field for arg in forced if arg.action is action} for action in ForcedAction}
    fields = set(spec.request.fields_by_name)
    refused = (_ALWAYS_HIDDEN & fields) | by_action[ForcedAction.HIDE]
    unseen = refused | by_action[ForcedAction.DROP] | by_action[ForcedAction.SET]
    reader = RequestReader(
        spec.request,
        hidden=refused,
        dropped=by_action[ForcedAction.DROP],
        forced={arg.field: json.loads(arg.value) for arg in forced if arg.action is ForcedAction.SET},
    )
    return BoundTool(op, _tool(spec, request_schema(spec.request, hidden=unseen)), reader)


def _tool(spec: OpSpec, input_schema: Schema) -> "types.Tool":
    import mcp_types as types  # here: settings name toolsets, and the models of messages take half a second to load

    return types.Tool(
        name=spec.mcp_name,
        title=spec.name,
        description=_described(spec.description),
        input_schema=input_schema,
        output_schema=_output_schema(spec),
        annotations=types.ToolAnnotations(
            read_only_hint=spec.read_only,
            destructive_hint=spec.name.rpartition(".")[2] in _DESTRUCTIVE_VERBS,
            idempotent_hint=spec.idempotent,
            open_world_hint=False,
        ),
    )


def _output_schema(spec: OpSpec) -> Schema:
    """Returns the schema of a tool's structured content.

    No member of the root is required: some clients hold the structured content of an error to this schema too, and
    that is an object with `error` alone.
    """
    schema = response_schema(spec.response, described=False)
    schema.pop("required", None)
    return schema


def _described(comment: str) -> str:
    """Returns an RPC's comment without the paragraph that lists its errors: a model is told each as it meets it."""
    return "\n".join(line for line in comment.split("\n") if not line.startswith("Errors:"))
