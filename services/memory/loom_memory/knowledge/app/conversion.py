"""Conversion of documents, beside the calls that are served: in a thread where it is short, in a process otherwise."""

import asyncio
import base64
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from loom_common.errors import BackendUnavailable, InvalidArgument, LoomError, PayloadTooLarge
from loom_memory.knowledge.domain.chunks import Chunk
from loom_memory.knowledge.domain.converters.converted import Bounds, Unconvertible
from loom_memory.knowledge.domain.documents import Kind
from loom_memory.knowledge.domain.kinds import file_name, kind_of
from loom_memory.knowledge.domain.noise import Noise
from loom_memory.knowledge.domain.preparation import Prepared, PreparedChunk, Source, prepare
from loom_memory.knowledge.domain.sections import Section

logger = logging.getLogger(__name__)

IN_PROCESS_BYTES: Final = 32 * 1024
"""Longest Markdown or plain text that is converted in a thread of this process. Source: measured, 2026-12-01: it takes
25 ms, and 0.3 s where every line is a heading; a process of its own takes a quarter of a second to begin."""

_CHILD: Final = "loom_memory.knowledge.app.conversion_child"
_SIMPLE: Final = frozenset({Kind.MARKDOWN, Kind.TEXT})
# A child that its bound of memory or time ended says nothing more.
_KILLED: Final = frozenset({-signal.SIGKILL, -signal.SIGXCPU, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS})
_CONTENT: Final = "content"


class Conversion(Protocol):
    """Turns a document into what is stored of it."""

    async def prepare(self, source: Source) -> Prepared:
        """Returns what is stored of a document.

        Raises:
            InvalidArgument: It cannot be read.
            PayloadTooLarge: It passes a bound.
        """
        ...


@dataclass(frozen=True, slots=True)
class ConversionBounds:
    """What conversions may use: of each its text's bounds, seconds, and memory; and how many run at once."""

    text: Bounds
    timeout_s: float = 60.0
    memory_bytes: int = 1024 * 1024 * 1024
    at_once: int = 2


class ConversionProcesses:
    """Converts in processes of their own, each for one document."""

    def __init__(self, bounds: ConversionBounds) -> None:
        self._bounds = bounds
        self._places = asyncio.Semaphore(bounds.at_once)

    async def prepare(self, source: Source) -> Prepared:
        """See `Conversion.prepare`."""
        try:
            if _is_simple(source):
                return await asyncio.to_thread(prepare, source, self._bounds.text)
        except Unconvertible as error:
            raise refusal(error) from None
        async with self._places:
            return await self._in_child(source)

    async def _in_child(self, source: Source) -> Prepared:
        child = _Child(self._bounds.timeout_s)
        try:
            code, told = await asyncio.to_thread(child.run, self._header(source), source.content)
        except asyncio.CancelledError:
            child.end()
            raise
        if code is None:
            raise PayloadTooLarge(
                f"The document could not be read within {self._bounds.timeout_s:g} s. It is broken, or has to be split "
                "into several."
            )
        if code == 0:
            return await asyncio.to_thread(_read, told)
        logger.warning("conversion_ended", extra={"code": code, "bytes": len(source.content)})
        if code in _KILLED:
            raise PayloadTooLarge("The document takes more memory or time to read than is allowed. Split it up.")
        raise InvalidArgument.of(_CONTENT, "cannot be read: its converter failed. Save it in another form")

    def _header(self, source: Source) -> bytes:
        held = {
            "source_uri": source.source_uri,
            "media_type": source.media_type,
            "title": source.title,
            "language": source.language,
        }
        bounds = self._bounds
        header = {
            "source": held,
            "bounds": asdict(bounds.text),
            "memory_bytes": bounds.memory_bytes,
            "cpu_s": max(1, round(bounds.timeout_s)),
        }
        return json.dumps(header).encode() + b"\n"


class _Child:
    """One process, which a thread waits for: an event loop may start processes by a fork, which copies every lock."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ended = False

    def run(self, header: bytes, content: bytes) -> tuple[int | None, bytes]:
        """Returns the process's code and what it wrote; None where its time was over."""
        # `-I` keeps the environment and the working directory out; nothing of this process is inherited.
        arguments = [sys.executable, "-I", "-m", _CHILD]
        pipe = subprocess.PIPE
        with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:  # noqa: S603
            self._process = process
            if self._is_ended:
                process.kill()
            try:
                told, _ = process.communicate(header + content, timeout=self._timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                return None, b""
            return process.returncode, told

    def end(self) -> None:
        """Ends the process, now or as soon as it is there."""
        self._is_ended = True
        if self._process is not None:
            self._process.kill()


def refusal(error: Unconvertible) -> LoomError:
    """Returns the error of a document that cannot be read."""
    if error.too_large:
        return PayloadTooLarge(str(error))
    return InvalidArgument(str(error), detail={"field": _CONTENT})


def _is_simple(source: Source) -> bool:
    """Says whether a document is short and of a kind whose conversion takes no time that matters."""
    if len(source.content) > IN_PROCESS_BYTES:
        return False
    kind = kind_of(source.content, source.media_type.partition(";")[0], file_name(source.source_uri))
    return kind in _SIMPLE


def _read(told: bytes) -> Prepared:
    """Returns what a child told.

    Raises:
        LoomError: It refused the document.
        BackendUnavailable: It told nothing that can be read.
    """
    try:
        answer: Mapping[str, Any] = json.loads(told)
    except ValueError:
        raise BackendUnavailable("The document's converter was ended; send it again.") from None
    if "error" in answer:
        raise refusal(Unconvertible(answer["error"], too_large=answer["too_large"]))
    return Prepared(
        kind=Kind(answer["kind"]),
        language=answer["language"],
        title=answer["title"],
        text=base64.b64decode(answer["text"]).decode(),
        pages=answer["pages"],
        sections=[_section(held) for held in answer["sections"]],
        chunks=[PreparedChunk(Chunk(*held[:4]), held[4], held[5]) for held in answer["chunks"]],
    )


def _section(held: Mapping[str, Any]) -> Section:
    return Section(**{**held, "heading_path": tuple(held["heading_path"]), "noise": Noise(held["noise"])})
