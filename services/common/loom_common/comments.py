"""The comments of the contract, by the full name of what they stand on."""

import functools
import re
from collections.abc import Iterable, Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    ServiceDescriptorProto,
)

import loom_protos

# Field numbers in descriptor.proto: a location's path is made of them and of indexes.
_FILE_MESSAGE = FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER
_FILE_ENUM = FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER
_FILE_SERVICE = FileDescriptorProto.SERVICE_FIELD_NUMBER
_FILE_EXTENSION = FileDescriptorProto.EXTENSION_FIELD_NUMBER
_MESSAGE_FIELD = DescriptorProto.FIELD_FIELD_NUMBER
_MESSAGE_NESTED = DescriptorProto.NESTED_TYPE_FIELD_NUMBER
_MESSAGE_ENUM = DescriptorProto.ENUM_TYPE_FIELD_NUMBER
_MESSAGE_ONEOF = DescriptorProto.ONEOF_DECL_FIELD_NUMBER
_ENUM_VALUE = EnumDescriptorProto.VALUE_FIELD_NUMBER
_SERVICE_METHOD = ServiceDescriptorProto.METHOD_FIELD_NUMBER

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(\[])")

_Path = tuple[int, ...]


class Comments:
    """Reads comments out of descriptors that were built with source info.

    Names are full: `loom.memory.v1.MemoryService.SetMemory`, `loom.memory.v1.Memory.key`. A value of an enum is named
    below its enum: `loom.common.v1.Role.ROLE_VIEWER`.
    """

    def __init__(self, files: FileDescriptorSet) -> None:
        self._texts: dict[str, str] = {}
        for file in files.file:
            placed = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
            for path, name in _names(file):
                if text := placed.get(path, ""):
                    self._texts[name] = _unwrapped(text)

    def of(self, full_name: str) -> str:
        """Returns the comment on a name, its lines joined to paragraphs; empty where there is none."""
        return self._texts.get(full_name, "")

    def summary(self, full_name: str) -> str:
        """Returns the first sentence of the comment on a name."""
        return first_sentence(self.of(full_name))


@functools.cache
def contract_comments() -> Comments:
    """Returns the comments of the whole contract."""
    return Comments(loom_protos.descriptor_set())


def first_sentence(text: str) -> str:
    """Returns the first sentence of a comment."""
    return _SENTENCE_END.split(text.split("\n", 1)[0], maxsplit=1)[0]


def _names(file: FileDescriptorProto) -> Iterator[tuple[_Path, str]]:
    prefix = f"{file.package}." if file.package else ""
    for index, message in enumerate(file.message_type):
        yield from _message_names(message, prefix, (_FILE_MESSAGE, index))
    for index, enum in enumerate(file.enum_type):
        yield from _enum_names(enum, prefix, (_FILE_ENUM, index))
    for index, service in enumerate(file.service):
        path: _Path = (_FILE_SERVICE, index)
        yield path, f"{prefix}{service.name}"
        yield from _leaves(service.method, f"{prefix}{service.name}.", (*path, _SERVICE_METHOD))
    yield from _leaves(file.extension, prefix, (_FILE_EXTENSION,))


def _message_names(message: DescriptorProto, prefix: str, path: _Path) -> Iterator[tuple[_Path, str]]:
    name = f"{prefix}{message.name}"
    yield path, name
    yield from _leaves(message.field, f"{name}.", (*path, _MESSAGE_FIELD))
    yield from _leaves(message.oneof_decl, f"{name}.", (*path, _MESSAGE_ONEOF))
    for index, nested in enumerate(message.nested_type):
        yield from _message_names(nested, f"{name}.", (*path, _MESSAGE_NESTED, index))
    for index, enum in enumerate(message.enum_type):
        yield from _enum_names(enum, f"{name}.", (*path, _MESSAGE_ENUM, index))


def _enum_names(enum: EnumDescriptorProto, prefix: str, path: _Path) -> Iterator[tuple[_Path, str]]:
    yield path, f"{prefix}{enum.name}"
    yield from _leaves(enum.value, f"{prefix}{enum.name}.", (*path, _ENUM_VALUE))


def _leaves(items: Iterable[object], prefix: str, path: _Path) -> Iterator[tuple[_Path, str]]:
    for index, item in enumerate(items):
        yield (*path, index), f"{prefix}{getattr(item, 'name')}"  # noqa: B009 - many types, one attribute


def _unwrapped(text: str) -> str:
    """Returns a comment with the lines of a paragraph joined; an empty line or a list item starts a new one."""
    paragraphs: list[str] = []
    fresh = True
    for raw in text.splitlines():
        line = raw.strip()
        if not line:
            fresh = True
            continue
        if fresh or line.startswith(("- ", "* ", "Errors:")):
            paragraphs.append(line)
        else:
            paragraphs[-1] = f"{paragraphs[-1]} {line}"
        fresh = False
    return "\n".join(paragraphs)
