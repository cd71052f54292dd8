"""Lines of an export: read as they were written, and refused where they are not what they should be."""

import base64
import json
import math
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.memory.v1 import transfer_pb2
from loom_common.call import Scope
from loom_common.errors import LoomError, Reason
from loom_memory.domain.memory import Content, Identity, Memory, Sensitivity
from loom_memory.domain.records import (
    ChunkForm,
    Record,
    RecordChunk,
    RecordForm,
    RecordVectors,
    VectorsForm,
    is_mark,
    line_from_memory,
    record_from_line,
)
from loom_memory.store.columns import COLUMNS

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
UNIT = [1.0, 0.0]
# Not of the memory itself: where it lies, the store's own number, and the call that wrote it here.
NOT_TOLD = {"org", "namespace", "version", "tombstoned_at", "request_id"}


def vector(*numbers: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def line(**fields: Any) -> bytes:
    return json.dumps({"value": "text", **fields}).encode()


def with_vector(text: str, dim: int = 2, **more: Any) -> bytes:
    return line(vectors={"model": "m", "dim": dim, "chunks": [{"start": 0, "end": 4, "vector": text, **more}]})


def test_a_line_tells_every_column_that_is_of_the_memory() -> None:
    told = {{"memory_key": "key", "revision": "version"}.get(column.name, column.name) for column in COLUMNS
            if column.name not in NOT_TOLD}  # fmt: skip
    assert told <= set(RecordForm.model_fields)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (RecordForm, transfer_pb2.MemoryRecord),
        (VectorsForm, transfer_pb2.RecordVectors),
        (ChunkForm, transfer_pb2.RecordChunk),
    ],
)
def test_the_contract_describes_what_is_read(form: Any, message: Any) -> None:
    assert set(form.model_fields) == {field.name for field in message.DESCRIPTOR.fields}


times = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)).map(  # noqa: DTZ001  (made aware below)
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
contents = st.builds(
    Content,
    value=texts.filter(lambda text: bool(text.strip())),
    kind=st.sampled_from(["note", "fact", "event"]),
    tags=st.lists(texts.filter(bool), max_size=3).map(tuple),
    importance=st.floats(0, 1),
    agent=texts,
    speaker=texts,
    source=texts,
    event_time=st.none() | times,
    expires_at=st.none() | times,
    pinned=st.booleans(),
)
memories = st.builds(
    Memory,
    scope=st.just(Scope("acme", "team")),
    identity=st.builds(Identity, texts.filter(bool), texts, texts),
    content=contents,
    actor=st.just("human:x"),
    revision=st.integers(1, 1000),
    version=st.integers(1, 2**60),
    created_at=times,
    updated_at=times,
    sensitivity=st.sampled_from([each.value for each in Sensitivity]),
    valid_at=st.none() | times,
    invalid_at=st.none() | times,
    attestation=texts,
    sensitivity_stated=st.sampled_from([each.value for each in Sensitivity]),
    sensitivity_found=st.lists(texts.filter(bool), max_size=2).map(tuple),
    recogniser=texts,
    labels=st.lists(texts.filter(bool), max_size=2).map(tuple),
    derived_from=st.lists(texts.filter(bool), max_size=2).map(tuple),
)
units = st.floats(0, math.tau).map(lambda angle: [math.cos(angle), math.sin(angle)])


def memory_of(record: Record, like: Memory) -> Memory:
    version = record.current
    assert version.created_at is not None
    assert version.updated_at is not None
    return Memory(
        like.scope, record.identity, version.content, version.actor, version.revision, like.version,
        version.created_at, version.updated_at, None, version.sensitivity, version.stated.valid_at,
        version.stated.invalid_at, version.stated.attestation, version.stated.sensitivity, version.sensitivity_found,
        version.recogniser, version.labels, version.stated.derived_from,
    )  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(memory=memories, numbers=units)
def test_what_is_written_is_read_as_it_was(memory: Memory, numbers: list[float]) -> None:
    vectors = RecordVectors("m", 2, (RecordChunk(0, 1, False, numbers), RecordChunk(0, 0, True, numbers)))
    written = line_from_memory(memory, [memory], 3, vectors)
    record = record_from_line(written)
    assert memory_of(record, memory) == memory
    assert [version.content for version in record.earlier] == [memory.content]
    assert record.vectors is not None
    again = RecordVectors(record.vectors.model, record.vectors.dim, record.vectors.chunks)
    assert line_from_memory(memory, [memory], 3, again) == written


def test_a_line_without_a_key_gets_the_same_one_each_time() -> None:
    first, second = record_from_line(line()), record_from_line(line())
    assert first.identity == second.identity
    assert not first.has_own_key


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", Reason.MALFORMED_REQUEST),
        (b'{"value": "cut', Reason.MALFORMED_REQUEST),
        (b"[]", Reason.MALFORMED_REQUEST),
        (b"7", Reason.MALFORMED_REQUEST),
        (b"\xff\xfe", Reason.MALFORMED_REQUEST),
        (b'{"value": "\\ud800"}', Reason.MALFORMED_REQUEST),
        (b'{"value": "a\x00b"}', Reason.MALFORMED_REQUEST),
        (b'{"value": "a\\u0000b"}', Reason.INVALID_ARGUMENT),
        (b'{"value": "a", "tags": ["\\u0000"]}', Reason.INVALID_ARGUMENT),
        (b'{"value": "a", "importance": NaN}', Reason.INVALID_ARGUMENT),
        (b"[" * 100_000, Reason.MALFORMED_REQUEST),
        (line(value=5), Reason.MALFORMED_REQUEST),
        (line(version="1"), Reason.MALFORMED_REQUEST),
        (line(pinned="true"), Reason.MALFORMED_REQUEST),
        (line(tags="a"), Reason.MALFORMED_REQUEST),
        (line(unheard_of=1), Reason.MALFORMED_REQUEST),
        (line(value="  "), Reason.INVALID_ARGUMENT),
        (line(value="x" * 65_537), Reason.INVALID_ARGUMENT),
        (line(value="é" * 40_000), Reason.INVALID_ARGUMENT),
        (line(key="k" * 513), Reason.INVALID_ARGUMENT),
        (line(kind="No Kind"), Reason.INVALID_ARGUMENT),
        (line(importance=1.5), Reason.INVALID_ARGUMENT),
        (line(event_time="yesterday"), Reason.INVALID_ARGUMENT),
        (line(created_at="2026-13-01"), Reason.INVALID_ARGUMENT),
        (line(versions=[{"value": ""}]), Reason.INVALID_ARGUMENT),
        (with_vector("not base64!"), Reason.INVALID_ARGUMENT),
        (with_vector(vector(1.0)), Reason.INVALID_ARGUMENT),
        (with_vector(vector(1.0, 0.0, 0.0)), Reason.INVALID_ARGUMENT),
        (with_vector(vector(math.nan, 0.0)), Reason.INVALID_ARGUMENT),
        (with_vector(vector(math.inf, 0.0)), Reason.INVALID_ARGUMENT),
        (with_vector(vector(2.0, 0.0)), Reason.INVALID_ARGUMENT),
        (with_vector(vector(0.0, 0.0)), Reason.INVALID_ARGUMENT),
        (with_vector(vector(*UNIT), end=5), Reason.INVALID_ARGUMENT),
        (with_vector(vector(*UNIT), of_key=True), Reason.INVALID_ARGUMENT),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_line_that_is_no_memory_is_refused(bad: bytes, reason: Reason) -> None:
    with pytest.raises(LoomError) as caught:
        record_from_line(bad)
    assert caught.value.reason is reason


def test_an_error_shows_nothing_of_what_the_line_holds() -> None:
    with pytest.raises(LoomError) as caught:
        record_from_line(line(value="s3cret", importance=7, kind="S3CRET WORDS"))
    assert "s3cret" not in caught.value.message.lower()
    assert {field.field for field in caught.value.fields} == {"importance", "kind"}


def test_times_without_an_offset_are_utc_and_others_are_turned() -> None:
    record = record_from_line(line(event_time="2026-11-30T02:00:00+02:00", created_at="2026-11-30"))
    assert record.current.content.event_time == NOW - timedelta(hours=12)
    assert record.current.created_at == NOW - timedelta(hours=12)


def test_marks_of_an_export_are_no_memories() -> None:
    assert is_mark(b'{"cursor":"x"}')
    assert not is_mark(b'{"cursor":"x","value":"is told that it is none"}')
    assert is_mark(b'{"finished":true,"count":1}')
    assert not is_mark(line(key="cursor"))
