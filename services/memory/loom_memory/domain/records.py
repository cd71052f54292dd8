"""Memories as lines of text: what an export sends and an import reads, without loss.

A line is JSON in the form of the contract's `MemoryRecord`; a test keeps the two and the stored columns together.
"""

import base64
import binascii
import json
import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError

from loom_common.errors import FieldViolation, InvalidArgument, LoomError, MalformedRequest
from loom_common.times import format_optional_time, format_time, parse_optional_time
from loom_memory.domain.memory import (
    DEFAULT_IMPORTANCE,
    DEFAULT_KIND,
    Content,
    Identity,
    Memory,
    Stated,
    content_key,
    to_milliseconds,
)

MAX_VALUE_BYTES: Final = 65_536
"""Longest value, as of a write."""

MAX_VERSIONS_BYTES: Final = 1_500_000
"""Most text of earlier versions in one line, so that a line stays well under what a message may hold."""

# Vectors that were normalised in float32 are well within this of one. Source: chosen.
_UNIT_TOLERANCE: Final = 1e-3
_MAX_NAMED: Final = 5

_Name = Annotated[str, StringConstraints(max_length=256)]
_Key = Annotated[str, StringConstraints(max_length=512)]
_Time = Annotated[str, StringConstraints(max_length=64)]
_Kind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
_Tag = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class _Form(BaseModel):
    # Strict: "5" is no number, and a field that is not known is not dropped without a word.
    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)


class ChunkForm(_Form):
    """One vector of a line; see `RecordChunk`."""

    start: Annotated[int, Field(ge=0, le=MAX_VALUE_BYTES)] = 0
    end: Annotated[int, Field(ge=0, le=MAX_VALUE_BYTES)] = 0
    of_key: bool = False
    vector: Annotated[str, StringConstraints(max_length=131_072)]


class VectorsForm(_Form):
    """The vectors of a line; see `RecordVectors`."""

    model: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    dim: Annotated[int, Field(ge=1, le=16_384)]
    chunks: Annotated[list[ChunkForm], Field(min_length=1, max_length=4_096)]


class VersionForm(_Form):
    """What a line says of one version; see `MemoryRecord`."""

    value: str
    kind: _Kind = DEFAULT_KIND
    tags: Annotated[list[_Tag], Field(max_length=32)] = []
    importance: Annotated[float, Field(ge=0, le=1)] = DEFAULT_IMPORTANCE
    agent: _Name = ""
    speaker: _Name = ""
    source: Annotated[str, StringConstraints(max_length=2_048)] = ""
    event_time: _Time = ""
    valid_at: _Time = ""
    invalid_at: _Time = ""
    expires_at: _Time = ""
    pinned: bool = False
    sensitivity: _Name = ""
    sensitivity_stated: _Name = ""
    sensitivity_found: Annotated[list[_Name], Field(max_length=64)] = []
    recogniser: _Name = ""
    labels: Annotated[list[_Name], Field(max_length=64)] = []
    attestation: _Name = ""
    derived_from: Annotated[list[_Key], Field(max_length=1_000)] = []
    actor: Annotated[str, StringConstraints(max_length=512)] = ""
    version: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    created_at: _Time = ""
    updated_at: _Time = ""


class RecordForm(VersionForm):
    """A whole line; see `MemoryRecord`."""

    key: _Key = ""
    user_id: _Name = ""
    session_id: _Name = ""
    versions: Annotated[list[VersionForm], Field(max_length=100_000)] = []
    versions_left_out: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    vectors: VectorsForm | None = None


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """One vector of a record, of unit length; see `RecordChunk` of the contract."""

    start: int
    end: int
    of_key: bool
    vector: Sequence[float]

    def to_json(self) -> Mapping[str, JsonValue]:
        """Returns it as a line shows it."""
        told: dict[str, JsonValue] = {"start": self.start, "end": self.end}
        if self.of_key:
            told["of_key"] = True
        return {**told, "vector": base64.b64encode(_float32(self.vector)).decode()}


@dataclass(frozen=True, slots=True)
class RecordVectors:
    """The vectors of a record."""

    model: str
    dim: int
    chunks: tuple[RecordChunk, ...]

    @classmethod
    def of(cls, form: VectorsForm, value: str) -> Self:
        """Returns the vectors of a line.

        Raises:
            InvalidArgument: One is not what it should be: its bytes, its width, its numbers or its place.
        """
        chunks = tuple(_chunk(form, place, len(value)) for place in range(len(form.chunks)))
        if not any(not chunk.of_key for chunk in chunks):
            raise InvalidArgument.of("vectors.chunks", "hold none of the value")
        return cls(form.model, form.dim, chunks)


@dataclass(frozen=True, slots=True)
class Record:
    """One line, read: a memory as it is to be, and where it comes from.

    Attributes:
        identity: Its name.
        has_own_key: Whether the line gives the key; else it is made of the content.
        current: The version that is shown.
        earlier: Its earlier versions, oldest first.
        vectors: Vectors of the current version, if the line has any.
    """

    identity: Identity
    has_own_key: bool
    current: "RecordVersion"
    earlier: tuple["RecordVersion", ...]
    vectors: RecordVectors | None


@dataclass(frozen=True, slots=True)
class RecordVersion:
    """One version of a record; times and revision are absent where the line did not tell."""

    content: Content
    actor: str
    revision: int
    created_at: datetime | None
    updated_at: datetime | None
    sensitivity: str
    sensitivity_found: tuple[str, ...]
    recogniser: str
    labels: tuple[str, ...]
    stated: Stated


def line_from_memory(
    memory: Memory, earlier: Sequence[Memory] = (), left_out: int = 0, vectors: RecordVectors | None = None
) -> bytes:
    """Returns the line of a memory, without its end."""
    told: dict[str, JsonValue] = {
        "key": memory.identity.key,
        "user_id": memory.identity.user_id,
        "session_id": memory.identity.session_id,
        **_version_to_json(memory),
    }
    if earlier:
        told["versions"] = [dict(_version_to_json(version)) for version in earlier]
    if left_out:
        told["versions_left_out"] = left_out
    if vectors is not None:
        chunks: list[JsonValue] = [dict(chunk.to_json()) for chunk in vectors.chunks]
        told["vectors"] = {"model": vectors.model, "dim": vectors.dim, "chunks": chunks}
    return json.dumps(_without_empty(told), ensure_ascii=False, separators=(",", ":")).encode()


def record_from_line(line: bytes) -> Record:
    """Returns what a line says.

    Raises:
        MalformedRequest: It is not JSON in UTF-8, a field is unknown or has the wrong type.
        InvalidArgument: A field breaks its rule.
    """
    try:
        form = RecordForm.model_validate_json(line)
    except ValidationError as error:
        raise _refusal(error) from None
    if b"\\u0000" in line:
        _require_no_nul(form.model_dump(), "")
    current = _version(form, "")
    identity = Identity(form.key or content_key(current.content, current.stated), form.user_id, form.session_id)
    return Record(
        identity=identity,
        has_own_key=bool(form.key),
        current=current,
        earlier=tuple(_version(earlier, f"versions[{place}].") for place, earlier in enumerate(form.versions)),
        vectors=None if form.vectors is None else RecordVectors.of(form.vectors, form.value),
    )


def is_mark(line: bytes) -> bool:
    """Says whether a line is one that an export puts between its memories."""
    return (
        line.startswith((b'{"cursor":', b'{"finished":', b'{"cursor" :', b'{"finished" :')) and b'"value"' not in line
    )


def _version_to_json(memory: Memory) -> Mapping[str, JsonValue]:
    content = memory.content
    told: dict[str, JsonValue] = {
        "value": content.value,
        "kind": content.kind,
        "tags": list(content.tags),
        "importance": content.importance,
        "agent": content.agent,
        "speaker": content.speaker,
        "source": content.source,
        "event_time": format_optional_time(content.event_time),
        "valid_at": format_optional_time(memory.valid_at),
        "invalid_at": format_optional_time(memory.invalid_at),
        "expires_at": format_optional_time(content.expires_at),
        "pinned": content.pinned,
        "sensitivity": memory.sensitivity,
        "sensitivity_stated": memory.sensitivity_stated,
        "sensitivity_found": list(memory.sensitivity_found),
        "recogniser": memory.recogniser,
        "labels": list(memory.labels),
        "attestation": memory.attestation,
        "derived_from": list(memory.derived_from),
        "actor": memory.actor,
        "version": memory.revision,
        "created_at": format_time(memory.created_at),
        "updated_at": format_time(memory.updated_at),
    }
    return _without_empty(told)


def _without_empty(told: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    # Zero is not empty: an importance of none is not the default.
    return {name: value for name, value in told.items() if value is not False and value not in ("", [])}


def _version(form: VersionForm, path: str) -> RecordVersion:
    if not form.value.strip():
        raise InvalidArgument.of(f"{path}value", "must hold text")
    if len(form.value) > MAX_VALUE_BYTES or len(form.value.encode()) > MAX_VALUE_BYTES:
        raise InvalidArgument.of(f"{path}value", f"must be at most {MAX_VALUE_BYTES} bytes of UTF-8")
    return RecordVersion(
        content=Content(
            value=form.value,
            kind=form.kind,
            tags=tuple(form.tags),
            importance=float(form.importance),
            agent=form.agent,
            speaker=form.speaker,
            source=form.source,
            event_time=_time(form.event_time, f"{path}event_time"),
            expires_at=_time(form.expires_at, f"{path}expires_at"),
            pinned=form.pinned,
        ),
        actor=form.actor,
        revision=form.version,
        created_at=_time(form.created_at, f"{path}created_at"),
        updated_at=_time(form.updated_at, f"{path}updated_at"),
        sensitivity=form.sensitivity,
        sensitivity_found=tuple(form.sensitivity_found),
        recogniser=form.recogniser,
        labels=tuple(form.labels),
        stated=Stated(
            valid_at=_time(form.valid_at, f"{path}valid_at"),
            invalid_at=_time(form.invalid_at, f"{path}invalid_at"),
            attestation=form.attestation,
            sensitivity=form.sensitivity_stated,
            derived_from=tuple(form.derived_from),
        ),
    )


def _time(text: str, field: str) -> datetime | None:
    moment = parse_optional_time(text, field) if text else None
    return None if moment is None else to_milliseconds(moment)


def _chunk(form: VectorsForm, place: int, value_chars: int) -> RecordChunk:
    chunk, field = form.chunks[place], f"vectors.chunks[{place}]"
    try:
        raw = base64.b64decode(chunk.vector, validate=True)
    except (ValueError, binascii.Error):
        raise InvalidArgument.of(f"{field}.vector", "must be float32 numbers in base64") from None
    if len(raw) != 4 * form.dim:
        raise InvalidArgument.of(f"{field}.vector", f"must be {form.dim} float32 numbers, {4 * form.dim} bytes")
    numbers = array("f", raw)
    if sys.byteorder == "big":
        numbers.byteswap()
    length = math.hypot(*numbers)
    if not math.isfinite(length):
        raise InvalidArgument.of(f"{field}.vector", "must hold finite numbers")
    if abs(length - 1.0) > _UNIT_TOLERANCE:
        raise InvalidArgument.of(f"{field}.vector", "must be of unit length")
    if not chunk.of_key and not chunk.start <= chunk.end <= value_chars:
        raise InvalidArgument.of(f"{field}.start", "must lie in the value")
    return RecordChunk(chunk.start, chunk.end, chunk.of_key, numbers.tolist())


def _float32(vector: Sequence[float]) -> bytes:
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _refusal(error: ValidationError) -> LoomError:
    """Returns an error that names the fields and shows nothing of what they hold."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)[:_MAX_NAMED]
    fields = [FieldViolation(_path(problem["loc"]), problem["msg"]) for problem in problems]
    told = "; ".join(f"{field.field}: {field.description}" if field.field else field.description for field in fields)
    kinds = {str(problem["type"]) for problem in problems}
    form = {"json_invalid", "json_type", "extra_forbidden", "missing", "model_type", "model_attributes_type"}
    if kinds & form or any(kind.endswith("_type") for kind in kinds):
        return MalformedRequest(f"The line is not a memory: {told}.", fields=fields)
    return InvalidArgument(f"{told}.", fields=fields)


def _path(location: Sequence[int | str]) -> str:
    told = ""
    for part in location:
        told += f"[{part}]" if isinstance(part, int) else f".{part}" if told else part
    return told


def _require_no_nul(value: object, path: str) -> None:
    if isinstance(value, str) and "\x00" in value:
        raise InvalidArgument.of(path, "must not hold NUL characters")
    if isinstance(value, dict):
        for name, member in value.items():
            _require_no_nul(member, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for place, member in enumerate(value):
            _require_no_nul(member, f"{path}[{place}]")
