"""Which kind of document some bytes are: by what they are declared to be, by their name, and by how they begin."""

from typing import Final

import regex

from loom_memory.knowledge.domain.converters.converted import Unconvertible
from loom_memory.knowledge.domain.documents import Kind

_BY_MEDIA_TYPE: Final = {
    "text/markdown": Kind.MARKDOWN,
    "text/x-markdown": Kind.MARKDOWN,
    "text/html": Kind.HTML,
    "application/xhtml+xml": Kind.HTML,
    "text/plain": Kind.TEXT,
    "application/pdf": Kind.PDF,
    "application/x-pdf": Kind.PDF,
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": Kind.DOCX,
    "text/x-python": Kind.CODE,
    "application/javascript": Kind.CODE,
    "text/javascript": Kind.CODE,
    "application/typescript": Kind.CODE,
    "text/x-source": Kind.CODE,
}
_BY_ENDING: Final = {
    "md": Kind.MARKDOWN,
    "markdown": Kind.MARKDOWN,
    "mdx": Kind.MARKDOWN,
    "html": Kind.HTML,
    "htm": Kind.HTML,
    "xhtml": Kind.HTML,
    "txt": Kind.TEXT,
    "text": Kind.TEXT,
    "rst": Kind.TEXT,
    "log": Kind.TEXT,
    "pdf": Kind.PDF,
    "docx": Kind.DOCX,
}
# What says nothing of a kind: a browser or a server that knows none.
_SAYS_NOTHING: Final = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/x-download"})
_LOOKED_AT: Final = 1024
_PDF: Final = b"%PDF-"
_ZIP: Final = b"PK\x03\x04"
_OTHER_BINARIES: Final = (
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office file of the old form; save it as DOCX or PDF"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"\x1f\x8b", "packed with gzip; unpack it first"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"7z\xbc\xaf", "a 7z archive; unpack it first"),
)
# A comment ends at its first mark: were others tried, many comments would take time by two to their number.
_HTML: Final = regex.compile(
    rb"^\s*+(?:(?><!--.{0,500}?-->)\s*+)*+<(?:!doctype\s+html|html|head|body)\b", regex.IGNORECASE | regex.DOTALL
)
READABLE: Final = "Markdown, HTML, plain text, code, PDF and DOCX"


def file_name(source_uri: str) -> str:
    """Returns the last part of a URI's path."""
    path = source_uri.partition("?")[0].partition("#")[0].rstrip("/")
    return path.replace("\\", "/").rsplit("/", 1)[-1]


def kind_of(content: bytes, media_type: str, name: str) -> Kind:
    """Returns the kind of a document.

    Args:
        content: Its bytes.
        media_type: What it is declared to be, without parameters; empty where it is not.
        name: Its file's name; may be empty.

    Raises:
        Unconvertible: It is of no kind that is read, or not what it is declared to be.
    """
    begin = content[:_LOOKED_AT]
    declared = _declared(media_type)
    seen = _seen(begin)
    if seen is None and declared in (Kind.PDF, Kind.DOCX):
        raise Unconvertible(f"The document is declared to be {media_type}, and its content is none.")
    if seen is not None and declared is not None and declared is not seen and seen is not Kind.HTML:
        raise Unconvertible(f"The document is declared to be {media_type}, and its content is {seen.value.upper()}.")
    if seen in (Kind.PDF, Kind.DOCX):
        return seen
    named = _named(name)
    if named in (Kind.PDF, Kind.DOCX) and declared is None:
        raise Unconvertible(f"The file is named {name[-80:]!r}, and its content is no {named.value.upper()}.")
    if declared is not None and declared is not Kind.TEXT:
        return declared
    # A server that sends Markdown or code calls it plain text.
    return named or declared or seen or Kind.MARKDOWN


def _declared(media_type: str) -> Kind | None:
    stated = media_type.strip().casefold()
    if stated in _SAYS_NOTHING:
        return None
    found = _BY_MEDIA_TYPE.get(stated)
    if found is None and stated.startswith("text/"):
        return Kind.TEXT
    if found is None:
        raise Unconvertible(f"Documents of the media type {stated[:80]!r} are not read; {READABLE} are.")
    return found


def _seen(begin: bytes) -> Kind | None:
    if begin.lstrip()[: len(_PDF)] == _PDF:
        return Kind.PDF
    if begin.startswith(_ZIP):
        return Kind.DOCX
    for mark, name in _OTHER_BINARIES:
        if begin.startswith(mark) and (mark != b"MZ" or b"\x00" in begin):
            raise Unconvertible(f"The file is {name}. {READABLE} are read.")
    return Kind.HTML if _HTML.match(begin) else None


def _named(name: str) -> Kind | None:
    from loom_memory.knowledge.domain.converters.code import is_code_name  # its lexers are loaded only where asked for

    ending = name.rpartition(".")[2].casefold() if "." in name else ""
    found = _BY_ENDING.get(ending)
    if found is not None:
        return found
    return Kind.CODE if name and is_code_name(name) else None
