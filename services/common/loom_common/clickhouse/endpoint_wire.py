"""ClickHouse's HTTP protocol as clickhouse-connect speaks it: requests in, answers out; no engine and no sockets."""

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import parse_qsl

import lz4.frame  # type: ignore[import-untyped]  # ships no types
from backports import zstd
from python_multipart import FormParser
from python_multipart.multipart import Field, parse_options_header

_CHUNK_BYTES: Final = 1 << 20

# Parameters that the transport itself reads; every other one is a setting of the statement.
_TRANSPORT: Final = frozenset(
    {
        "query",
        "database",
        "query_id",
        "user",
        "password",
        "default_format",
        "session_id",
        "session_timeout",
        "session_check",
        "quota_key",
        "role",
        "buffer_size",
        "compress",
        "decompress",
        "wait_end_of_query",
        "client_protocol_version",
        "send_progress_in_http_headers",
        "http_headers_progress_interval_ms",
        "enable_http_compression",
        "cancel_http_readonly_queries_on_client_close",
    }
)

# INSERT INTO name (columns) FORMAT X, then the data; anchored, so that a value that looks like it is none.
# No two alternatives of a repetition can match the same character, so it never backtracks.
_QUOTED: Final = rb"`(?:[^`\\]|\\.)*`"
_NAME: Final = rb"(?:" + _QUOTED + rb"|[A-Za-z_]\w*)"
_INSERT: Final = re.compile(
    rb"\s*(INSERT\s+INTO\s+(?:TABLE\s+)?" + _NAME + rb"(?:\." + _NAME + rb")?\s*(?:\((?:[^()`]|" + _QUOTED + rb")*\))?)"
    rb"\s*FORMAT\s+(\w+)[ \t]*(?:\r?\n|$)",
    re.IGNORECASE | re.DOTALL,
)
_TRAILING_FORMAT: Final = re.compile(rb"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_READS: Final = re.compile(rb"[\s(]*(?:SELECT|WITH|SHOW|DESCRIBE|DESC|EXPLAIN|EXISTS)\b", re.IGNORECASE)


class BadRequest(Exception):
    """The request is not one of the protocol; answered with its code, name and text."""

    def __init__(self, status: int, code: int, name: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.name = name

    @property
    def body(self) -> bytes:
        """The text in the engine's own form, from which the driver reads code and name."""
        return f"Code: {self.code}. DB::Exception: {self}. ({self.name})\n".encode()


@dataclass(slots=True)
class Statement:
    """One request's statement, with everything that rides beside it."""

    text: bytes
    data: Iterator[bytes] | None
    """Blocks of an INSERT's data, decoded; None for any other statement."""
    data_format: str
    database: str
    query_id: str
    parameters: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    default_format: str = ""
    compressed: bool = False

    @property
    def own_format(self) -> str:
        """The format that the text names at its end."""
        match = _TRAILING_FORMAT.search(self.text)
        return match.group(1).decode() if match else ""

    @property
    def reads_only(self) -> bool:
        """Whether stopping it half way changes nothing."""
        return _READS.match(self.text) is not None


def read_statement(query_string: bytes, headers: Mapping[str, str], body: bytes, max_decoded_bytes: int) -> Statement:
    """Reads one request.

    Raises:
        BadRequest: It is malformed, uses sessions, or decodes to more than the bound.
    """
    given = dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True))
    content_type = headers.get("content-type", "")
    if content_type.startswith("multipart/form-data"):
        given |= _form_fields(content_type, body)
        body = b""
    if given.get("session_id"):
        raise BadRequest(501, 48, "NOT_IMPLEMENTED", "Sessions are not kept here")
    blocks = bounded(decoded(body, headers.get("content-encoding", "")), max_decoded_bytes)
    text, data, data_format = _split(given.get("query", "").encode(), blocks)
    return Statement(
        text=text,
        data=data,
        data_format=data_format,
        database=given.get("database", "") or headers.get("x-clickhouse-database", ""),
        query_id=given.get("query_id", ""),
        parameters={name[6:]: value for name, value in given.items() if name.startswith("param_")},
        settings={
            name: value for name, value in given.items() if name not in _TRANSPORT and not name.startswith("param_")
        },
        default_format=given.get("default_format", ""),
        compressed=given.get("enable_http_compression", "0") == "1",
    )


def _split(query: bytes, blocks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes] | None, str]:
    """Tells statement from data: the statement is `query`, or stands at the head of the body."""
    if query:
        match = _INSERT.fullmatch(query.rstrip().rstrip(b";"))
        if match:
            return match.group(1).rstrip(), blocks, match.group(2).decode()
        rest = b"".join(blocks)
        return (query + b"\n" + rest if rest else query), None, ""
    head = next(blocks, b"")
    match = _INSERT.match(head)
    if match:
        return match.group(1).rstrip(), _chain(head[match.end() :], blocks), match.group(2).decode()
    return head + b"".join(blocks), None, ""


def _chain(head: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from blocks


def _form_fields(content_type: str, body: bytes) -> dict[str, str]:
    _, options = parse_options_header(content_type)
    fields: dict[str, str] = {}

    def keep(found: Field) -> None:
        fields[(found.field_name or b"").decode()] = (found.value or b"").decode()

    try:
        parser = FormParser("multipart/form-data", keep, None, boundary=options[b"boundary"])
        parser.write(body)
        parser.finalize()
    except (KeyError, ValueError) as error:
        raise BadRequest(400, 36, "BAD_ARGUMENTS", "The multipart body cannot be read") from error
    return fields


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def decoded(body: bytes, encoding: str) -> Iterator[bytes]:
    """Yields the body without its Content-Encoding; a driver compresses each block as a frame of its own.

    Raises:
        BadRequest: The encoding is not known or the bytes are not of it.
    """
    try:
        match encoding:
            case "" | "identity":
                if body:
                    yield body
            case "lz4":
                yield from _frames(body, lz4.frame.LZ4FrameDecompressor)
            case "zstd":
                yield from _frames(body, zstd.ZstdDecompressor)
            case "gzip":
                with gzip.GzipFile(fileobj=io.BytesIO(body)) as members:
                    while block := members.read(_CHUNK_BYTES):
                        yield block
            case _:
                raise BadRequest(415, 374, "UNKNOWN_COMPRESSION_METHOD", "The content encoding is not known")
    except (RuntimeError, zstd.ZstdError, OSError, EOFError, zlib.error) as error:
        raise BadRequest(400, 271, "CANNOT_DECOMPRESS", "The body cannot be decompressed") from error


def _frames(body: bytes, new: Callable[[], _Decompressor]) -> Iterator[bytes]:
    rest = body
    while rest:
        frame = new()
        block = frame.decompress(rest, _CHUNK_BYTES)
        while not frame.eof:
            if not block and frame.needs_input:
                raise EOFError
            if block:
                yield block
            block = frame.decompress(b"", _CHUNK_BYTES)
        if block:
            yield block
        rest = frame.unused_data or b""


def bounded(blocks: Iterator[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yields the blocks until they are too many bytes together, against a small body that decodes to a huge one."""
    total = 0
    for block in blocks:
        total += len(block)
        if total > max_bytes:
            raise BadRequest(413, 307, "TOO_MANY_BYTES", "The body is too large")
        yield block


def encoded(body: bytes, accepted: str) -> tuple[bytes, str]:
    """Returns the body compressed with the first encoding that the client accepts, and its name; empty for none."""
    names = {part.partition(";")[0].strip() for part in accepted.split(",")}
    if "lz4" in names:
        return lz4.frame.compress(body), "lz4"
    if "zstd" in names:
        return zstd.compress(body, level=1), "zstd"
    if "gzip" in names:
        return gzip.compress(body, compresslevel=1), "gzip"
    return body, ""


def summary(written_rows: int | None) -> str:
    """Returns the X-ClickHouse-Summary header; its values are strings, as the engine writes them."""
    return json.dumps({} if written_rows is None else {"written_rows": str(written_rows)})
