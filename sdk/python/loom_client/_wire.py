"""What the generated modules stand on: messages as dataclasses, and a caller that sends them."""

import base64
import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol, Self


class Message:
    """A message of the contract. Frozen; fields that a newer server adds are passed over."""

    __slots__ = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Returns the message that a JSON object stands for."""
        readers = _readers(cls)  # type: ignore[arg-type]  # a class is hashable; mypy does not see that of Self
        return cls(
            **{name: readers[name](value) for name, value in data.items() if name in readers and value is not None}
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the message as a JSON object; what was left at None is left out."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass
        return arguments(**{field.name: getattr(self, field.name) for field in fields})


class Caller(Protocol):
    """Sends one operation and returns its answer."""

    def call(self, op: str, body: Mapping[str, Any], *, idempotent: bool) -> dict[str, Any]:
        """Sends `body` to `op`; `idempotent` allows sending it again after a failure that passes."""
        ...


class AsyncCaller(Protocol):
    """Sends one operation and returns its answer; for asyncio."""

    async def call(self, op: str, body: Mapping[str, Any], *, idempotent: bool) -> dict[str, Any]:
        """Sends `body` to `op`; `idempotent` allows sending it again after a failure that passes."""
        ...


def arguments(**fields: object) -> dict[str, Any]:
    """Returns the JSON object of a request; arguments left at None are left out."""
    return {name: _plain(value) for name, value in fields.items() if value is not None}


def _plain(value: object) -> object:
    if isinstance(value, Message):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    return value


@cache
def _readers(cls: type[Message]) -> dict[str, Any]:
    return {name: _reader(hint) for name, hint in typing.get_type_hints(cls).items()}


def _reader(hint: Any) -> Any:  # a type at run time has no narrower static type
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return _reader(inner[0])
    if origin is tuple:
        read = _reader(inner[0])
        return lambda values: tuple(read(value) for value in values)
    if isinstance(hint, type) and issubclass(hint, Message):
        return hint.from_json
    if hint is float:
        return float
    if hint is bytes:
        return base64.b64decode
    return lambda value: value
