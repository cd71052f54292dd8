"""Whom a call's own calls to models are for; sent between services beside a service credential."""

import functools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ATTRIBUTION_KEY: Final = "loom-attribution-bin"

_MAX_BYTES: Final = 4096
_MAX_CHARS: Final = 256
# Calls of one caller for one thing say the same. Source: chosen; half a megabyte at most.
_KEPT: Final = 512
# NUL, and halves of characters, which no header and no table can hold.
_UNSENDABLE: Final = re.compile(r"[\x00\ud800-\udfff]")
_TEXTS: Final = ("org", "namespace", "subject", "user_id", "feature", "run_id")


class Kind(StrEnum):
    """What made the call."""

    REQUEST = "request"
    JOB = "job"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Attribution:
    """Names the organisation and the person that a call is for.

    It counts only beside a valid service credential; from anyone else it is dropped unread.
    """

    org: str
    """Organisation whose data is sent; empty only for `Kind.SYSTEM`."""
    namespace: str = ""
    """Namespace whose data is sent."""
    subject: str = ""
    """Subject of the caller's token."""
    user_id: str = ""
    """User that the request named."""
    feature: str = ""
    """What the call serves: the operation of a request, the worker of a job, `system.<what>` of the deployment."""
    kind: Kind = Kind.REQUEST
    """What made the call."""
    read_only: bool = False
    """Whether the operation only reads, so that a deployment with LLM-free reads refuses it a completion."""
    run_id: str = ""
    """Run that the caller named."""

    def to_bytes(self) -> bytes:
        """Returns the value of the metadata `loom-attribution-bin`: JSON, empty values left out."""
        return _written(self)

    @staticmethod
    def from_bytes(data: bytes) -> "Attribution":
        """Returns what `to_bytes` wrote; keys of a newer peer are passed over.

        Raises:
            ValueError: The bytes are not an attribution.
        """
        return _read(data)


@functools.lru_cache(_KEPT)
def _written(attribution: Attribution) -> bytes:
    held = {name: value for name in attribution.__slots__ if (value := getattr(attribution, name))}
    return json.dumps(held, separators=(",", ":")).encode()


@functools.lru_cache(_KEPT)
def _read(data: bytes) -> Attribution:
    if len(data) > _MAX_BYTES:
        raise ValueError("the attribution is too long")
    try:
        held = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError("the attribution is not JSON") from error
    if not isinstance(held, dict):
        raise ValueError("the attribution is not an object")
    texts = {name: _text(name, held.get(name, "")) for name in _TEXTS}
    read_only = held.get("read_only", False)
    if not isinstance(read_only, bool):
        raise ValueError("the attribution's read_only is not true or false")
    kind = Kind(_text("kind", held.get("kind", "")))
    if not texts["org"] and kind is not Kind.SYSTEM:
        raise ValueError("the attribution names no organisation")
    return Attribution(kind=kind, read_only=read_only, **texts)


def attribution_from_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> Attribution | None:
    """Returns the attribution that a peer sent, or None where it sent none.

    Raises:
        ValueError: What it sent cannot be read. A call to a model must not run under a guess.
    """
    for key, value in metadata:
        if key == ATTRIBUTION_KEY and isinstance(value, bytes):
            return Attribution.from_bytes(value)
    return None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the attribution's {name} is not text")
    if len(value) > _MAX_CHARS or _UNSENDABLE.search(value):
        raise ValueError(f"the attribution's {name} is not allowed")
    return value
