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
WELL_KNOWN: Final = {
    ".google.protobuf.ListValue": "list[object]",
    ".google.protobuf.Struct": "dict[str, object]",
    ".google.protobuf.Value": "object",
}
# Arguments that may be given by position although the contract has a default or a length for them, not `required`.
POSITIONAL: Final = {"context.pack": ("query",), "profile.set_section": ("value",)}
# Messages with properties beside their fields, which are written by hand.
MIXINS: Final = {"PackContextResponse": "PackParts"}
# How an operation is read on: the field that says where, and the one of the answer that says where next.
PAGING: Final = (("page_token", "next_page_token"), ("page", "next_page"), ("offset", "next_offset"))

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
    hits_field: str


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
                repeatable = op.idempotent or op.read_only
                names = (method.input_type, method.output_type)
                self.operations.append(Operation(op.name, repeatable, comment, *names, op.hits_field))

    def is_map(self, field: Any) -> bool:
        """Tells whether a field is a map; its entry type is nested and therefore not among the messages."""
        return bool(
            field.type == self.types.TYPE_MESSAGE
            and field.type_name not in self.messages
            and not field.type_name.startswith(".google.")
        )

    def is_repeated(self, field: Any) -> bool:
        """Tells whether a field is a list."""
        return bool(field.label == self.types.LABEL_REPEATED) and not self.is_map(field)

    def is_required(self, field: Any) -> bool:
        """Tells whether a request must carry a field."""
        rules = field.options.Extensions[self._rules]
        # Without a presence of its own, a text that may not be empty cannot be left out.
        full = field.type == self.types.TYPE_STRING and rules.string.min_len and not field.proto3_optional
        return bool(rules.required or full or (self.is_repeated(field) and rules.repeated.min_items))

    def scalar(self, field: Any) -> str:
        """Returns the Python type of one value of a field."""
        if field.type_name in WELL_KNOWN:
            return WELL_KNOWN[field.type_name]
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
            if field.type == contract.types.TYPE_MESSAGE and field.type_name in contract.messages
        ]
    out = [HEADER, "from collections.abc import Mapping\nfrom dataclasses import dataclass, field\n\n"]
    out.append("from loom_client._wire import Message\nfrom loom_client.packs import PackParts\n")
    for name in contract.reachable(roots):
        message = contract.messages[name]
        out.append("\n\n@dataclass(frozen=True, slots=True, kw_only=True)\n")
        out.append(f"class {message.name}({_bases(message.name)}):\n")
        out.append(_docstring(contract.comments[name], "    "))
        for field in message.field:
            out.append(f"\n    {_attribute(contract, field)}\n")
            out.append(_docstring(contract.comments[f"{name}.{field.name}"], "    "))
    return "".join(out)


def _bases(message: str) -> str:
    return f"{MIXINS[message]}, Message" if message in MIXINS else "Message"


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
    iterator = "AsyncIterator" if is_async else "Iterator"
    names = ", ".join(sorted((iterator, "Mapping", "Sequence")))
    out = [HEADER, f"from collections.abc import {names}\n\n"]
    out.append(f"from loom_client._generated import types\nfrom loom_client._wire import {caller}, arguments\n")
    groups: dict[str, list[Operation]] = {}
    for operation in contract.operations:
        groups.setdefault(operation.name.split(".")[0], []).append(operation)
    for group, operations in groups.items():
        out.append(f"\n\nclass {prefix}{_class_name(group)}:\n")
        out.append(_docstring(f"Operations `{group}.*`.", "    "))
        out.append(f"\n    def __init__(self, caller: {caller}) -> None:\n        self._caller = caller\n")
        for operation in operations:
            out.append("\n" + "".join(_method(contract, operation, is_async=is_async)))
            paging = _paging(contract, operation)
            if paging:
                out.append("\n" + "".join(_iterator(contract, operation, paging, is_async=is_async)))
    out.append(f"\n\nclass {prefix}Operations:\n" + _docstring("Every group of operations.", "    "))
    out.append(f"\n    def __init__(self, caller: {caller}) -> None:\n")
    out += [f"        self.{group} = {prefix}{_class_name(group)}(caller)\n" for group in groups]
    return "".join(out)


def _class_name(group: str) -> str:
    return "".join(part.capitalize() for part in group.split("_")) + "Ops"


def _method_name(operation: Operation) -> str:
    verb = operation.name.split(".", 1)[1].replace(".", "_")
    return f"{verb}_" if keyword.iskeyword(verb) else verb


def _sorted_fields(contract: Contract, operation: Operation) -> tuple[list[Any], list[Any], list[Any]]:
    """Returns the fields of a request: required ones, those that may be given by position, and others."""
    fields = list(contract.messages[operation.request].field)
    required = [field for field in fields if contract.is_required(field)]
    named = POSITIONAL.get(operation.name, ())
    by_position = [field for field in fields if field.name in named and field not in required]
    return required, by_position, [field for field in fields if field not in required and field not in by_position]


def _signature(contract: Contract, required: list[Any], by_position: list[Any], others: list[Any]) -> Iterator[str]:
    yield "        self,\n"
    yield from (f"        {field.name}: {_argument(contract, field)},\n" for field in required)
    yield from (f"        {field.name}: {_argument(contract, field)} | None = None,\n" for field in by_position)
    if others:
        yield "        *,\n"
    for field in others:
        yield f"        {field.name}: {_argument(contract, field)} | None = None,\n"


def _paging(contract: Contract, operation: Operation) -> tuple[str, str, str] | None:
    """Returns how an operation is read on: where, where next, and the field whose values come page by page."""
    asked = {field.name for field in contract.messages[operation.request].field}
    answered = list(contract.messages[operation.response].field)
    for here, there in PAGING:
        if here not in asked or there not in {field.name for field in answered}:
            continue
        lists = [field.name for field in answered if contract.is_repeated(field)]
        if here == "offset":
            lists = [field.name for field in answered if field.name == "text"]
        found = operation.hits_field if operation.hits_field in lists else next(iter(lists), "")
        return (here, there, found) if found else None
    return None


def _iterator(
    contract: Contract, operation: Operation, paging: tuple[str, str, str], *, is_async: bool
) -> Iterator[str]:
    here, there, values = paging
    name = _method_name(operation)
    required, by_position, others = _sorted_fields(contract, operation)
    others = [field for field in others if field.name not in (here, "paging")]
    value = next(field for field in contract.messages[operation.response].field if field.name == values)
    kind = contract.scalar(value)
    kind = f"types.{kind}" if value.type == contract.types.TYPE_MESSAGE else kind
    yield f"    {'async ' if is_async else ''}def {name.rstrip('_')}_all(\n"
    yield from _signature(contract, required, by_position, others)
    yield f"    ) -> {'AsyncIterator' if is_async else 'Iterator'}[{kind}]:\n"
    yield f'        """Yields the `{values}` that `{name}` answers, from all pages; takes its arguments.\n\n'
    yield "        A page is asked for when the one before it is used up.\n\n"
    yield "        Raises:\n            LoomError: A page was refused or failed; its `reason` tells why.\n"
    yield '        """\n'
    # An argument may be called `page`.
    position = ("int", "0") if here == "offset" else ("str", '""')
    yield f"        _there: {position[0]} = {position[1]}\n        while True:\n"
    yield f"            _page = {'await ' if is_async else ''}self.{name}(\n"
    for field in [*required, *by_position, *others]:
        yield f"                {field.name}={field.name},\n"
    if here == "page":
        yield "                paging=True,\n"
    yield f"                {here}=_there or None,\n            )\n"
    if here == "offset":
        yield f"            if _page.{values}:\n                yield _page.{values}\n"
    elif is_async:
        yield f"            for one in _page.{values}:\n                yield one\n"
    else:
        yield f"            yield from _page.{values}\n"
    yield f"            _there = _page.{there} or {position[1]}\n"
    yield "            if not _there:\n                return\n"


def repeatable_module(contract: Contract) -> str:
    """Returns the module that names the operations which may be sent again."""
    names = sorted(operation.name for operation in contract.operations if operation.idempotent)
    lines = "".join(f'        "{name}",\n' for name in names)
    text = '"""Operations that change nothing more when they are sent again."""\n'
    return f"{HEADER}from typing import Final\n\nREPEATABLE: Final = frozenset(\n    {{\n{lines}    }}\n)\n{text}"


def _method(contract: Contract, operation: Operation, *, is_async: bool) -> Iterator[str]:
    required, by_position, others = _sorted_fields(contract, operation)
    others = [*by_position, *others]
    response = f"types.{operation.response.rsplit('.', 1)[-1]}"
    yield f"    {'async ' if is_async else ''}def {_method_name(operation)}(\n"
    yield from _signature(contract, required, by_position, [field for field in others if field not in by_position])
    yield f"    ) -> {response}:\n"
    text = f"{operation.comment}"
    yield _method_docstring(contract, operation, text, [*required, *others])
    # An argument may be called `body`.
    yield "        _body = arguments(\n"
    for field in [*required, *others]:
        yield f"            {field.name}={field.name},\n"
    yield "        )\n"
    call = f'self._caller.call("{operation.name}", _body, idempotent={operation.idempotent})'
    yield f"        return {response}.from_json({'await ' if is_async else ''}{call})\n"


def _argument(contract: Contract, field: Any) -> str:
    kind = contract.scalar(field) if not contract.is_map(field) else "Mapping[str, str]"
    if field.type == contract.types.TYPE_MESSAGE and not contract.is_map(field) and field.type_name not in WELL_KNOWN:
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
        "repeatable.py": repeatable_module(contract),
        "async_ops.py": ops_module(contract, is_async=True),
    }
    for name, text in modules.items():
        path = TARGET / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    generate()
