"""Generates `loom_client/_generated/`: a dataclass per message and a method per operation of the contract.

Run by the wheel's build and by `make proto`. It reads the descriptor set of the contract, comments included, which it
has generated first where needed.
"""

from __future__ import annotations

import keyword
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent
PROTOS: Final = ROOT.parent.parent / "protos"
TARGET: Final = ROOT / "loom_client" / "_generated"
PUBLIC_PACKAGES: Final = tuple(
    f"loom.{service}.v1" for service in ("memory", "insights", "assistant", "identity", "embedding")
)
WIDTH: Final = 116

sys.path[:0] = [str(PROTOS), str(PROTOS / "gen")]

HEADER: Final = '"""Generated from the contract. Do not edit: change the protos and run `make proto`."""\n\n'


@dataclass(frozen=True)
class Operation:
    """One operation as the client shows it."""

    name: str
    idempotent: bool
    comment: str
    request: Any
    response: Any


class Contract:
    """The parts of the contract that the client shows."""

    def __init__(self) -> None:
        import generate

        generate.generate()
        from buf.validate import validate_pb2
        from google.protobuf import descriptor_pb2

        from loom.common.v1 import op_pb2

        files = descriptor_pb2.FileDescriptorSet.FromString(generate.DESCRIPTOR_SET.read_bytes())
        self.types = descriptor_pb2.FieldDescriptorProto
        self._op_pb2 = op_pb2
        self._rules = validate_pb2.field
        self.messages: dict[str, Any] = {}
        self.comments: dict[str, str] = {}
        self.operations: list[Operation] = []
        public = [file for file in files.file if file.package in PUBLIC_PACKAGES]
        for file in public:
            self._read_messages(file)
        for file in public:
            self._read_operations(file)

    def _read_messages(self, file: Any) -> None:
        locations = _comments(file)
        for index, message in enumerate(file.message_type):
            full = f".{file.package}.{message.name}"
            self.messages[full] = message
            self.comments[full] = locations.get((4, index), "")
            for number, field in enumerate(message.field):
                self.comments[f"{full}.{field.name}"] = locations.get((4, index, 2, number), "")

    def _read_operations(self, file: Any) -> None:
        locations = _comments(file)
        for service_index, service in enumerate(file.service):
            for index, method in enumerate(service.method):
                op = method.options.Extensions[self._op_pb2.op]
                # What answers several messages is written by hand: it is no call with one answer.
                if op.role == self._op_pb2.ROLE_INTERNAL or method.client_streaming or method.server_streaming:
                    continue
                comment = locations.get((6, service_index, 2, index), "")
                self.operations.append(
                    Operation(op.name, op.idempotent or op.read_only, comment, method.input_type, method.output_type)
                )

    def is_map(self, field: Any) -> bool:
        """Tells whether a field is a map; its entry type is nested and therefore not among the messages."""
        return bool(field.type == self.types.TYPE_MESSAGE and field.type_name not in self.messages)

    def is_repeated(self, field: Any) -> bool:
        """Tells whether a field is a list."""
        return bool(field.label == self.types.LABEL_REPEATED) and not self.is_map(field)

    def is_required(self, field: Any) -> bool:
        """Tells whether a request must carry a field."""
        rules = field.options.Extensions[self._rules]
        return bool(rules.required or (self.is_repeated(field) and rules.repeated.min_items))

    def scalar(self, field: Any) -> str:
        """Returns the Python type of one value of a field."""
        if field.type == self.types.TYPE_MESSAGE:
            return str(field.type_name).rsplit(".", 1)[-1]
        kinds = {
            self.types.TYPE_STRING: "str",
            self.types.TYPE_BYTES: "bytes",
            self.types.TYPE_BOOL: "bool",
            self.types.TYPE_INT32: "int",
            self.types.TYPE_DOUBLE: "float",
            self.types.TYPE_FLOAT: "float",
        }
        return kinds[field.type]

    def reachable(self, roots: list[str]) -> list[str]:
        """Returns messages and those inside them, each after the ones that it uses."""
        order: list[str] = []

        def visit(name: str) -> None:
            if name in order:
                return
            for field in self.messages[name].field:
                if field.type == self.types.TYPE_MESSAGE and field.type_name in self.messages:
                    visit(field.type_name)
            order.append(name)

        for root in roots:
            visit(root)
        return order


def _comments(file: Any) -> dict[tuple[int, ...], str]:
    return {tuple(place.path): place.leading_comments.strip() for place in file.source_code_info.location}


def _docstring(text: str, indent: str) -> str:
    words = " ".join(line.strip() for line in text.splitlines()).strip() or "See the contract."
    lines = textwrap.wrap(words, WIDTH - len(indent) - 3)
    if len(lines) == 1:
        return f'{indent}"""{lines[0]}"""\n'
    first, _, rest = words.partition(". ")
    body = textwrap.wrap(rest, WIDTH - len(indent))
    if not rest or len(first) > WIDTH - len(indent) - 4:
        return f'{indent}"""{lines[0]}\n' + "".join(f"{indent}{line}\n" for line in lines[1:]) + f'{indent}"""\n'
    return f'{indent}"""{first}.\n\n' + "".join(f"{indent}{line}\n" for line in body) + f'{indent}"""\n'


def types_module(contract: Contract) -> str:
    """Returns the module with one frozen dataclass per message of an answer, and per message inside a request."""
    roots = [operation.response for operation in contract.operations]
    for operation in contract.operations:
        roots += [
            field.type_name
            for field in contract.messages[operation.request].field
            if field.type == contract.types.TYPE_MESSAGE and not contract.is_map(field)
        ]
    out = [HEADER, "from collections.abc import Mapping\nfrom dataclasses import dataclass, field\n\n"]
    out.append("from loom_client._wire import Message\n")
    for name in contract.reachable(roots):
        message = contract.messages[name]
        out.append(f"\n\n@dataclass(frozen=True, slots=True, kw_only=True)\nclass {message.name}(Message):\n")
        out.append(_docstring(contract.comments[name], "    "))
        for field in message.field:
            out.append(f"\n    {_attribute(contract, field)}\n")
            out.append(_docstring(contract.comments[f"{name}.{field.name}"], "    "))
    return "".join(out)


def _attribute(contract: Contract, field: Any) -> str:
    if contract.is_map(field):
        return f"{field.name}: Mapping[str, str] = field(default_factory=dict)"
    kind = contract.scalar(field)
    if contract.is_repeated(field):
        return f"{field.name}: tuple[{kind}, ...] = ()"
    if field.type == contract.types.TYPE_MESSAGE or field.proto3_optional:
        return f"{field.name}: {kind} | None = None"
    defaults = {"str": '""', "bytes": 'b""', "bool": "False", "int": "0", "float": "0.0"}
    return f"{field.name}: {kind} = {defaults[kind]}"


def ops_module(contract: Contract, *, is_async: bool) -> str:
    """Returns the module with one class per group of operations, `memory.*` and so on."""
    prefix, caller = ("Async", "AsyncCaller") if is_async else ("", "Caller")
    out = [HEADER, "from collections.abc import Mapping, Sequence\n\n"]
    out.append(f"from loom_client._generated import types\nfrom loom_client._wire import {caller}, arguments\n")
    groups: dict[str, list[Operation]] = {}
    for operation in contract.operations:
        groups.setdefault(operation.name.split(".")[0], []).append(operation)
    for group, operations in groups.items():
        out.append(f"\n\nclass {prefix}{_class_name(group)}:\n")
        out.append(_docstring(f"Operations `{group}.*`.", "    "))
        out.append(f"\n    def __init__(self, caller: {caller}) -> None:\n        self._caller = caller\n")
        out.extend("\n" + "".join(_method(contract, operation, is_async=is_async)) for operation in operations)
    out.append(f"\n\nclass {prefix}Operations:\n" + _docstring("Every group of operations.", "    "))
    out.append(f"\n    def __init__(self, caller: {caller}) -> None:\n")
    out += [f"        self.{group} = {prefix}{_class_name(group)}(caller)\n" for group in groups]
    return "".join(out)


def _class_name(group: str) -> str:
    return "".join(part.capitalize() for part in group.split("_")) + "Ops"


def _method(contract: Contract, operation: Operation, *, is_async: bool) -> Iterator[str]:
    fields = list(contract.messages[operation.request].field)
    required = [field for field in fields if contract.is_required(field)]
    others = [field for field in fields if not contract.is_required(field)]
    verb = operation.name.split(".", 1)[1].replace(".", "_")
    name = f"{verb}_" if keyword.iskeyword(verb) else verb
    response = f"types.{operation.response.rsplit('.', 1)[-1]}"
    yield f"    {'async ' if is_async else ''}def {name}(\n        self,\n"
    yield from (f"        {field.name}: {_argument(contract, field)},\n" for field in required)
    if others:
        yield "        *,\n"
    for field in others:
        yield f"        {field.name}: {_argument(contract, field)} | None = None,\n"
    yield f"    ) -> {response}:\n"
    text = f"{operation.comment}"
    yield _method_docstring(contract, operation, text, [*required, *others])
    yield "        body = arguments(\n"
    for field in [*required, *others]:
        yield f"            {field.name}={field.name},\n"
    yield "        )\n"
    call = f'self._caller.call("{operation.name}", body, idempotent={operation.idempotent})'
    yield f"        return {response}.from_json({'await ' if is_async else ''}{call})\n"


def _argument(contract: Contract, field: Any) -> str:
    kind = contract.scalar(field) if not contract.is_map(field) else "Mapping[str, str]"
    if field.type == contract.types.TYPE_MESSAGE and not contract.is_map(field):
        kind = f"types.{kind} | Mapping[str, object]"
    return f"Sequence[{kind}]" if contract.is_repeated(field) else kind


def _method_docstring(contract: Contract, operation: Operation, text: str, fields: list[Any]) -> str:
    lines = [line.strip() for line in text.splitlines()]
    words = " ".join(line for line in lines if not line.startswith("Errors:"))
    first, _, rest = words.partition(". ")
    out = [f'        """{first.rstrip(".")}.\n']
    if rest:
        out += ["\n", *[f"        {line}\n" for line in textwrap.wrap(rest, WIDTH - 8)]]
    if fields:
        out.append("\n        Args:\n")
    for field in fields:
        comment = " ".join(contract.comments[f"{operation.request}.{field.name}"].split())
        wrapped = textwrap.wrap(f"{field.name}: {comment}", WIDTH - 16)
        out += [f"            {wrapped[0]}\n", *[f"                {line}\n" for line in wrapped[1:]]]
    out.append("\n        Raises:\n            LoomError: The call was refused or failed; its `reason` tells why.\n")
    out.append('        """\n')
    return "".join(out).replace("\\", "\\\\")


def generate() -> None:
    """Writes the generated modules."""
    contract = Contract()
    TARGET.mkdir(exist_ok=True)
    modules = {
        "__init__.py": HEADER.rstrip() + "\n",
        "types.py": types_module(contract),
        "ops.py": ops_module(contract, is_async=False),
        "async_ops.py": ops_module(contract, is_async=True),
    }
    for name, text in modules.items():
        path = TARGET / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    generate()
