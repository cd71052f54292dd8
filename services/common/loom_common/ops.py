"""The operations of the contract, read from the options on its RPCs.

Routes, MCP tools, OpenAPI, authorization, rate limits and the ledger all read them here, so they cannot disagree.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor, MethodDescriptor
from google.protobuf.message import Message

from loom.assistant.v1 import assistant_pb2
from loom.common.v1 import erasure_pb2 as common_erasure_pb2
from loom.common.v1 import op_pb2
from loom.common.v1 import status_pb2 as common_status_pb2
from loom.embedding.v1 import calibration_pb2, embedding_pb2
from loom.identity.v1 import access_pb2, directory_pb2, identity_pb2, secrets_pb2, sign_in_pb2
from loom.insights.v1 import analysis_pb2, help_pb2, insights_pb2, ledger_pb2, mentor_pb2, namespace_pb2, usage_pb2
from loom.llm.v1 import llm_pb2
from loom.memory.v1 import (
    ask_pb2,
    conflicts_pb2,
    context_pb2,
    conversation_pb2,
    erasure_pb2,
    exposures_pb2,
    extraction_pb2,
    guide_pb2,
    inventory_pb2,
    knowledge_pb2,
    maintenance_pb2,
    memory_pb2,
    procedure_pb2,
    profile_pb2,
    replay_pb2,
    search_pb2,
    session_pb2,
    transfer_pb2,
    workers_pb2,
)
from loom_common.comments import contract_comments

CONTRACT_FILES: Final[tuple[FileDescriptor, ...]] = (
    memory_pb2.DESCRIPTOR,
    conflicts_pb2.DESCRIPTOR,
    search_pb2.DESCRIPTOR,
    ask_pb2.DESCRIPTOR,
    extraction_pb2.DESCRIPTOR,
    knowledge_pb2.DESCRIPTOR,
    context_pb2.DESCRIPTOR,
    guide_pb2.DESCRIPTOR,
    profile_pb2.DESCRIPTOR,
    procedure_pb2.DESCRIPTOR,
    conversation_pb2.DESCRIPTOR,
    session_pb2.DESCRIPTOR,
    inventory_pb2.DESCRIPTOR,
    workers_pb2.DESCRIPTOR,
    exposures_pb2.DESCRIPTOR,
    replay_pb2.DESCRIPTOR,
    maintenance_pb2.DESCRIPTOR,
    transfer_pb2.DESCRIPTOR,
    erasure_pb2.DESCRIPTOR,
    embedding_pb2.DESCRIPTOR,
    calibration_pb2.DESCRIPTOR,
    llm_pb2.DESCRIPTOR,
    usage_pb2.DESCRIPTOR,
    insights_pb2.DESCRIPTOR,
    analysis_pb2.DESCRIPTOR,
    namespace_pb2.DESCRIPTOR,
    mentor_pb2.DESCRIPTOR,
    help_pb2.DESCRIPTOR,
    ledger_pb2.DESCRIPTOR,
    assistant_pb2.DESCRIPTOR,
    identity_pb2.DESCRIPTOR,
    access_pb2.DESCRIPTOR,
    directory_pb2.DESCRIPTOR,
    secrets_pb2.DESCRIPTOR,
    sign_in_pb2.DESCRIPTOR,
    common_status_pb2.DESCRIPTOR,
    common_erasure_pb2.DESCRIPTOR,
)
"""Every file of the contract that declares a service."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")


class OpRole(StrEnum):
    """Smallest authority that may call an operation."""

    VIEWER = "viewer"
    WRITER = "writer"
    ADMIN = "admin"
    ORG_ADMIN = "org_admin"
    NONE = "none"
    INTERNAL = "internal"
    OPEN = "open"


class Toolset(StrEnum):
    """Named selection of MCP tools."""

    DEFAULT = "default"
    CODING = "coding"
    ASSISTANT = "assistant"
    ADMIN = "admin"


class Stability(StrEnum):
    """How settled an operation is."""

    STABLE = "stable"
    EXPERIMENTAL = "experimental"


class Citable(StrEnum):
    """Whether an assistant may cite what an operation returns."""

    YES = "yes"
    NO = "no"
    NO_NAMESPACE_DATA = "no_namespace_data"


class Narrow(StrEnum):
    """What a token may call whose reads are narrower than its namespaces."""

    REFUSED = "refused"
    SCOPED = "scoped"
    SAFE = "safe"


class ForcedAction(StrEnum):
    """What a toolset does to a request field."""

    DROP = "drop"
    HIDE = "hide"
    SET = "set"


@dataclass(frozen=True, slots=True)
class ForcedArg:
    """What one toolset does to one request field."""

    toolset: Toolset
    field: str
    action: ForcedAction
    value: str
    """Value that `SET` gives the field, as JSON; empty otherwise."""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One operation of the contract."""

    name: str
    """`memory.set`: the route, the ledger's op, the SDK's path."""
    method: str
    """`/loom.memory.v1.MemoryService/SetMemory`."""
    owner: str
    """Service that answers it: `memory`, `identity`, ...; `common` for what every service answers."""
    role: OpRole
    read_only: bool
    idempotent: bool
    toolsets: tuple[Toolset, ...]
    mcp_name: str
    """Name of its MCP tool."""
    rate_class: str
    stability: Stability
    narrow: Narrow
    citable: Citable
    http_only: bool
    ledger_text_keys: tuple[str, ...]
    ledger_id_keys: tuple[str, ...]
    hits_field: str
    """Path of the response list whose length the ledger records, such as `hits` or `memory.hits`; empty for none."""
    found_field: str
    """Response flag that the ledger records; empty where there is none."""
    forced_args: tuple[ForcedArg, ...]
    keeps_idempotency_key: bool
    """Whether the call sent again with its idempotency key gets the first call's answer."""
    request_streaming: bool
    response_streaming: bool
    summary: str
    """First sentence of the RPC's comment."""
    description: str
    """The RPC's whole comment."""
    request: Descriptor = field(repr=False, compare=False)
    response: Descriptor = field(repr=False, compare=False)

    @property
    def internal(self) -> bool:
        """Whether only services may call it, so that the gateway never offers it."""
        return self.role is OpRole.INTERNAL

    @property
    def service(self) -> str:
        """Full name of its gRPC service."""
        return self.method[1:].partition("/")[0]

    def count_hits(self, response: Message) -> int | None:
        """Returns how many hits a response carries, or None for an operation without hits."""
        if not self.hits_field:
            return None
        *parents, last = self.hits_field.split(".")
        for parent in parents:
            response = getattr(response, parent)
        return len(getattr(response, last))

    def was_found(self, response: Message) -> bool | None:
        """Returns whether a response says that something was found, or None for an operation that does not tell."""
        return bool(getattr(response, self.found_field)) if self.found_field else None

    def forced_in(self, toolset: Toolset) -> tuple[ForcedArg, ...]:
        """Returns what `toolset` does to its arguments."""
        return tuple(forced for forced in self.forced_args if forced.toolset is toolset)


class ContractError(Exception):
    """The contract's options are incomplete or contradict each other. Stops the start; lists every finding."""


@functools.cache
def all_ops() -> Mapping[str, OpSpec]:
    """Returns every operation by its name, internal ones included, in the order of the contract.

    Raises:
        ContractError: The options of an RPC are incomplete.
    """
    return read_ops(_methods())


def read_ops(methods: Iterable[MethodDescriptor]) -> Mapping[str, OpSpec]:
    """Returns the operations that the options of some RPCs describe, by name.

    Raises:
        ContractError: Options are incomplete, or one name stands on two RPCs.
    """
    specs: list[OpSpec] = []
    problems: list[str] = []
    for method in methods:
        found = method_problems(method)
        problems += found
        if not found:
            specs.append(_spec(method))
    for kind in ("name", "mcp_name"):
        counted = Counter(getattr(spec, kind) for spec in specs)
        problems += [f"{kind} {name!r} stands on {count} RPCs" for name, count in counted.items() if count > 1]
    if problems:
        raise ContractError("\n".join(problems))
    return MappingProxyType({spec.name: spec for spec in specs})


def op_by_method(path: str) -> OpSpec | None:
    """Returns the operation of a gRPC method path, or None for a method that is not of the contract, such as health."""
    return _by_method().get(path)


def public_ops() -> Mapping[str, OpSpec]:
    """Returns the operations that callers from outside may use, by name."""
    return MappingProxyType({name: spec for name, spec in all_ops().items() if not spec.internal})


@functools.cache
def _by_method() -> dict[str, OpSpec]:
    return {spec.method: spec for spec in all_ops().values()}


def _methods() -> Iterator[MethodDescriptor]:
    for file in CONTRACT_FILES:
        for service in file.services_by_name.values():
            yield from service.methods


def _options(method: MethodDescriptor) -> op_pb2.Op:
    return method.GetOptions().Extensions[op_pb2.op]


def _spec(method: MethodDescriptor) -> OpSpec:
    op = _options(method)
    comments = contract_comments()
    return OpSpec(
        name=op.name,
        method=f"/{method.containing_service.full_name}/{method.name}",
        owner=method.containing_service.file.package.split(".")[1],
        role=OpRole(_word(op_pb2.Role.Name(op.role), "ROLE_")),
        read_only=op.read_only,
        idempotent=op.idempotent,
        toolsets=tuple(_toolset(toolset) for toolset in op.toolsets),
        mcp_name=op.mcp_name or op.name.replace(".", "_"),
        rate_class=op.rate_class or "default",
        stability=Stability(_word(op_pb2.Stability.Name(op.stability), "STABILITY_")),
        narrow=Narrow(_word(op_pb2.Narrow.Name(op.narrow), "NARROW_")),
        citable=Citable(_word(op_pb2.Citable.Name(op.citable), "CITABLE_")),
        http_only=op.http_only,
        ledger_text_keys=tuple(op.ledger_text_keys),
        ledger_id_keys=tuple(op.ledger_id_keys),
        hits_field=op.hits_field,
        found_field=op.found_field,
        forced_args=tuple(
            ForcedArg(
                toolset=_toolset(forced.toolset),
                field=forced.field,
                action=ForcedAction(_word(op_pb2.ForcedArg.Action.Name(forced.action), "ACTION_")),
                value=forced.value,
            )
            for forced in op.forced_args
        ),
        keeps_idempotency_key=op.keeps_idempotency_key,
        request_streaming=method.client_streaming,
        response_streaming=method.server_streaming,
        summary=comments.summary(method.full_name),
        description=comments.of(method.full_name),
        request=method.input_type,
        response=method.output_type,
    )


def _toolset(value: op_pb2.Toolset.ValueType) -> Toolset:
    return Toolset(_word(op_pb2.Toolset.Name(value), "TOOLSET_"))


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()


def method_problems(method: MethodDescriptor) -> list[str]:
    """Returns what is missing or wrong in the options of one RPC, one line each."""
    if not method.GetOptions().HasExtension(op_pb2.op):
        return [f"{method.full_name}: has no op"]
    op = _options(method)
    request, response = method.input_type.fields_by_name, method.output_type.fields_by_name
    checks = {
        f"name {op.name!r} is not of the form noun.verb": not _NAME.fullmatch(op.name),
        "role is not stated": not op.role,
        "stability is not stated": not op.stability,
        "narrow is not stated": not op.narrow,
        "citable is not stated": not op.citable,
        "a toolset is not stated": op_pb2.TOOLSET_UNSPECIFIED in op.toolsets,
        "an internal op is in a toolset": op.role == op_pb2.ROLE_INTERNAL and bool(op.toolsets),
        # The assistant's tools change with the build that defines it.
        "an experimental op is in a toolset": op.stability == op_pb2.STABILITY_EXPERIMENTAL
        and any(toolset != op_pb2.TOOLSET_ASSISTANT for toolset in op.toolsets),
        "a read is not idempotent": op.read_only and not op.idempotent,
        "a read keeps an idempotency key": op.read_only and op.keeps_idempotency_key,
        f"hits_field {op.hits_field!r} is no list of the response": bool(op.hits_field)
        and not _is_list(_resolved(method.output_type, op.hits_field)),
        f"found_field {op.found_field!r} is no flag of the response": bool(op.found_field)
        and not _is_flag(response.get(op.found_field)),
    }
    problems = [problem for problem, wrong in checks.items() if wrong]
    problems += [f"ledger_text_keys: no request field {key!r}" for key in op.ledger_text_keys if key not in request]
    problems += [
        f"ledger_id_keys: no field {key!r}" for key in op.ledger_id_keys if key not in request and key not in response
    ]
    for forced in op.forced_args:
        problems += _forced_problems(forced, request)
    return [f"{method.full_name}: {problem}" for problem in problems]


def _forced_problems(forced: op_pb2.ForcedArg, request: Mapping[str, FieldDescriptor]) -> Iterator[str]:
    if forced.field not in request:
        yield f"forced_args: no request field {forced.field!r}"
    if not forced.toolset or not forced.action:
        yield f"forced_args: toolset or action of {forced.field!r} is not stated"
    if (forced.action == op_pb2.ForcedArg.ACTION_SET) != bool(forced.value):
        yield f"forced_args: a value stands with SET and only with it ({forced.field!r})"
    try:
        json.loads(forced.value or "null")
    except ValueError:
        yield f"forced_args: the value of {forced.field!r} is not JSON"


def _resolved(message: Descriptor, path: str) -> FieldDescriptor | None:
    """Returns the field at the end of a dotted path, or None where a step is missing or is no single message."""
    *parents, last = path.split(".")
    for parent in parents:
        step = message.fields_by_name.get(parent)
        if step is None or step.message_type is None or step.is_repeated:
            return None
        message = step.message_type
    return message.fields_by_name.get(last)


def _is_list(found: FieldDescriptor | None) -> bool:
    return found is not None and bool(found.is_repeated) and not _is_map(found)


def _is_map(found: FieldDescriptor) -> bool:
    return found.message_type is not None and bool(found.message_type.GetOptions().map_entry)


def _is_flag(found: FieldDescriptor | None) -> bool:
    return found is not None and found.type == FieldDescriptor.TYPE_BOOL and not found.is_repeated
