"""Reads files that somebody else made: JSON, lines of JSON, or a zip that holds one; whole, or with a clear error.

A file is read value by value where it is a list, so that one of many gigabytes needs no more memory than its largest
element. What it may unpack to, and how large an element may be, is bounded.
"""

import codecs
import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO, Final, NoReturn

from loom_cli.importers.items import BadFile

MAX_BYTES: Final = 8 * 1024**3
"""Most bytes of one file, unpacked. Source: chosen; exports of years of daily use are a few hundred megabytes."""

MAX_VALUE_CHARS: Final = 128 * 1024**2
"""Most characters of one element of a list, and of a file that is one object. Source: chosen; bounds memory."""

_MAX_RATIO: Final = 200
"""Most bytes that a byte of a zip may become. Source: chosen; JSON of chats packs five- to fifteenfold."""

_RATIO_FREE_BYTES: Final = 16 * 1024**2
_PIECE_BYTES: Final = 1024 * 1024
_SPACE: Final = " \t\r\n"


def values(file: Path, *, member: str = "") -> Iterator[tuple[str, object]]:
    """Yields the values of a file with where each stands: the elements of a list, the lines of lines, else the object.

    Args:
        file: The file; may be a zip.
        member: Name of the file that counts in a zip, without its ending; parts of it (`name-000.json`) count too.

    Raises:
        BadFile: It is not JSON, not whole, too large, or not what it is named.
    """
    with ExitStack() as held:
        try:
            for label, source in _sources(file, member, held):
                yield from _values_of(_Reader(source, label))
        except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise BadFile(f"{file} is a damaged zip: {error}") from error
        except RuntimeError as error:  # what zipfile says of one that is encrypted
            raise BadFile(f"{file} cannot be unpacked: {error}") from error


def _sources(file: Path, member: str, held: ExitStack) -> Iterator[tuple[str, IO[bytes]]]:
    if not zipfile.is_zipfile(file):
        if file.stat().st_size > MAX_BYTES:
            raise BadFile(f"{file} is larger than {MAX_BYTES >> 30} GiB")
        yield "", held.enter_context(file.open("rb"))
        return
    archive = held.enter_context(zipfile.ZipFile(file))
    found = sorted((info for info in archive.infolist() if _is_member(info, member)), key=lambda info: info.filename)
    if not found:
        raise BadFile(f"{file} is a zip without {member or 'a file'}.json")
    total = sum(info.file_size for info in found)
    packed = sum(info.compress_size for info in found)
    if total > MAX_BYTES or total > max(_RATIO_FREE_BYTES, packed * _MAX_RATIO):
        raise BadFile(f"{file} would unpack to {total} bytes, which no export of this kind does")
    for info in found:
        yield (info.filename if len(found) > 1 else ""), held.enter_context(archive.open(info))


def _is_member(info: zipfile.ZipInfo, member: str) -> bool:
    path = PurePosixPath(info.filename)
    if info.is_dir() or path.suffix != ".json" or path.parts[0] == "__MACOSX":
        return False
    part = path.stem.removeprefix(member)
    return not member or (path.stem.startswith(member) and (not part or part.lstrip("-_").isdigit()))


def _values_of(reader: "_Reader") -> Iterator[tuple[str, object]]:
    if reader.peek() == "[":
        reader.take()
        yield from reader.elements()
    else:
        yield from reader.documents()


class _Reader:
    """Text of a file, of which as much is held as the value that is being read."""

    def __init__(self, source: IO[bytes], label: str) -> None:
        self._source = source
        self._label = f"{label}, " if label else ""
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("strict")
        self._json = json.JSONDecoder(parse_constant=_no_constant)
        self._text = ""
        self._place = 0
        self._line = 1
        self._ended = False
        self._bytes = 0

    def peek(self) -> str:
        """Returns the next character that is no space; empty at the end."""
        while True:
            while self._place < len(self._text) and self._text[self._place] in _SPACE:
                self._line += self._text[self._place] == "\n"
                self._place += 1
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._more():
                return ""

    def take(self) -> None:
        """Passes over the character that `peek` returned."""
        self._place += 1

    def elements(self) -> Iterator[tuple[str, object]]:
        """Yields the elements of a list whose bracket was taken."""
        number = 0
        if self.peek() == "]":
            self.take()
        else:
            while True:
                number += 1
                yield f"{self._label}item {number}", self._value(f"item {number}")
                mark = self.peek()
                if mark not in (",", "]"):
                    self._fail("ends in the middle of a list" if not mark else "is not JSON", f"behind item {number}")
                self.take()
                if mark == "]":
                    break
        if self.peek():
            self._fail("goes on behind the end of its list", "")

    def documents(self) -> Iterator[tuple[str, object]]:
        """Yields values that stand one behind the other, as lines do; at least one."""
        if not self.peek():
            self._fail("is empty", "")
        while self.peek():
            line = self._line
            yield f"{self._label}line {line}", self._value(f"line {line}")

    def _value(self, name: str) -> object:
        """Reads one value, with more text as long as that may help."""
        self.peek()
        while True:
            try:
                found, end = self._json.raw_decode(self._text, self._place)
                if end < len(self._text) or self._ended:
                    break
                # A number may go on in the next piece.
                self._more()
            except RecursionError:
                self._fail("is nested too deeply", name)
            except json.JSONDecodeError as error:
                # Text that is wrong before its last characters is wrong with more of it, too.
                if len(self._text) - error.pos > _PIECE_BYTES and not error.msg.startswith("Unterminated"):
                    self._fail(f"is not JSON: {error.msg}", name)
                if not self._more(double=True):
                    self._fail(f"is cut short or not JSON: {error.msg}", name)
            except ValueError as error:
                self._fail(f"is not JSON: {error}", name)
            if len(self._text) - self._place > MAX_VALUE_CHARS:
                self._fail(f"has more than {MAX_VALUE_CHARS >> 20} MiB in one value", name)
        self._line += self._text.count("\n", self._place, end)
        self._place = end
        return found

    def _more(self, *, double: bool = False) -> bool:
        if self._ended:
            return False
        held = self._text[self._place :]
        # As much again as is held: a value that is read anew with each piece costs twice its length, not its square.
        piece = self._source.read(max(_PIECE_BYTES, len(held) if double else 0))
        self._bytes += len(piece)
        if self._bytes > MAX_BYTES:
            self._fail(f"is larger than {MAX_BYTES >> 30} GiB", "")
        if b"\0" in piece:
            self._fail("holds NUL bytes, which no JSON does", "")
        self._ended = not piece
        try:
            self._text = held + self._decoder.decode(piece, final=self._ended)
        except UnicodeDecodeError as error:
            self._fail(f"is not UTF-8: {error.reason}", "")
        self._place = 0
        return bool(piece)

    def _fail(self, what: str, name: str) -> NoReturn:
        at = f" at {self._label}{name}" if name else f" at {self._label.removesuffix(', ')}" if self._label else ""
        raise BadFile(f"the file {what}{at}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
