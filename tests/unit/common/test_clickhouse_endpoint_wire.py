import gzip
import time

import lz4.frame  # type: ignore[import-untyped]  # ships no types
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from loom_common.clickhouse.endpoint_wire import BadRequest, bounded, decoded, encoded, read_statement

COMPRESS = {"lz4": lz4.frame.compress, "zstd": zstd.compress, "gzip": gzip.compress}


@pytest.mark.parametrize("encoding", COMPRESS)
@given(frames=st.lists(st.binary(max_size=200), max_size=5))
def test_every_frame_of_a_body_is_decoded(encoding: str, frames: list[bytes]) -> None:
    body = b"".join(COMPRESS[encoding](frame) for frame in frames)
    assert b"".join(decoded(body, encoding)) == b"".join(frames)


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_body_that_is_cut_or_not_of_its_encoding_is_refused(encoding: str) -> None:
    for body in (COMPRESS[encoding](b"x" * 5000)[:-6], b"not compressed at all"):
        with pytest.raises(BadRequest) as caught:
            list(decoded(body, encoding))
        assert caught.value.name == "CANNOT_DECOMPRESS"


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_small_body_that_decodes_to_a_huge_one_is_stopped_on_the_way(encoding: str) -> None:
    body = COMPRESS[encoding](b"\0" * (40 << 20))
    with pytest.raises(BadRequest) as caught:
        for _ in bounded(decoded(body, encoding), 4 << 20):
            pass
    assert caught.value.status == 413


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(BadRequest):
        list(decoded(b"x", "br"))


def _read(query: str, body: bytes = b"") -> tuple[bytes, bytes | None, str]:
    statement = read_statement(query.encode(), {}, body, 1000)
    return statement.text, None if statement.data is None else b"".join(statement.data), statement.data_format


@pytest.mark.parametrize(
    ("query", "body", "expected"),
    [
        ("", b"SELECT 1 FORMAT Native", (b"SELECT 1 FORMAT Native", None, "")),
        ("query=SELECT%201", b"", (b"SELECT 1", None, "")),
        ("query=SELECT%201", b"+ 2", (b"SELECT 1\n+ 2", None, "")),
        ("", b"INSERT INTO t (`a b`, c) FORMAT Native\nDATA\n", (b"INSERT INTO t (`a b`, c)", b"DATA\n", "Native")),
        ("", b"INSERT INTO `d`.`t` FORMAT CSV\n1\n", (b"INSERT INTO `d`.`t`", b"1\n", "CSV")),
        ("query=INSERT%20INTO%20t%20FORMAT%20CSV", b"1,2", (b"INSERT INTO t", b"1,2", "CSV")),
        (
            "",
            b"INSERT INTO t VALUES ('FORMAT Native\nx')",
            (b"INSERT INTO t VALUES ('FORMAT Native\nx')", None, ""),
        ),
        ("", b"INSERT INTO t SELECT 1 FORMAT Native\n", (b"INSERT INTO t SELECT 1 FORMAT Native\n", None, "")),
    ],
)
def test_statement_and_data_are_told_apart(query: str, body: bytes, expected: tuple[bytes, bytes | None, str]) -> None:
    assert _read(query, body) == expected


def test_a_long_insert_is_read_in_no_time() -> None:
    body = b"INSERT INTO schema_migrations (" + b"service, version, name, checksum, " * 200 + b"x) FORMAT"
    started = time.perf_counter()
    read_statement(b"", {}, body, 100_000)
    assert time.perf_counter() - started < 1


def test_parameters_settings_and_transport_are_told_apart() -> None:
    query = b"database=d&query_id=q&param_x=1%202&max_threads=3&log_comment=m&enable_http_compression=1&query=SELECT+1"
    statement = read_statement(query, {}, b"", 100)
    assert statement.parameters == {"x": "1 2"}
    assert statement.settings == {"max_threads": "3", "log_comment": "m"}
    assert (statement.database, statement.query_id, statement.compressed) == ("d", "q", True)


def test_a_multipart_form_gives_parameters_and_query() -> None:
    body = (
        b'--b\r\nContent-Disposition: form-data; name="query"\r\n\r\nSELECT {x:String}\r\n'
        b"--b\r\nContent-Disposition: form-data; name=\"param_x\"\r\n\r\n\xe5\x92\x96 'q'\r\n--b--\r\n"
    )
    statement = read_statement(b"database=d", {"content-type": "multipart/form-data; boundary=b"}, body, 100)
    assert (statement.text, statement.parameters) == (b"SELECT {x:String}", {"x": "咖 'q'"})


def test_a_broken_form_and_a_session_are_refused() -> None:
    with pytest.raises(BadRequest):
        read_statement(b"", {"content-type": "multipart/form-data; boundary=b"}, b"--x", 100)
    with pytest.raises(BadRequest) as caught:
        read_statement(b"session_id=s&query=SELECT+1", {}, b"", 100)
    assert caught.value.name == "NOT_IMPLEMENTED"


@pytest.mark.parametrize(
    ("text", "reads"),
    [(b"SELECT 1", True), (b" (select 1)", True), (b"INSERT INTO t SELECT 1", False), (b"CREATE TABLE t", False)],
)
def test_only_reads_may_be_dropped_half_way(text: bytes, reads: bool) -> None:
    assert read_statement(b"", {}, text, 100).reads_only is reads


@pytest.mark.parametrize("accepted", ["lz4", "gzip, zstd", "gzip;q=0.5", "br", ""])
def test_an_answer_is_encoded_as_the_client_accepts(accepted: str) -> None:
    body, encoding = encoded(b"answer" * 100, accepted)
    assert not encoding or encoding in accepted
    assert b"".join(decoded(body, encoding)) == b"answer" * 100
