"""From bytes to what is stored of a document: its text, sections and chunks, each chunk with its terms.

The same function runs in this process for short texts and in a child for everything else, so it imports nothing of a
running service.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from loom_memory.domain.analyzer import analyze_text
from loom_memory.knowledge.domain.chunks import Chunk, chunks_of
from loom_memory.knowledge.domain.converters.converted import Bounds, Converted, Unconvertible, check_length
from loom_memory.knowledge.domain.documents import Kind
from loom_memory.knowledge.domain.kinds import file_name, kind_of
from loom_memory.knowledge.domain.sections import Section, one_line, sections_of

CONVERTER: Final = "1"
"""Version of all that makes text, sections and chunks of bytes: another one makes a document anew when it is sent
again."""


@dataclass(frozen=True, slots=True)
class Source:
    """A document as it was given.

    Attributes:
        source_uri: Its name.
        content: Its bytes.
        media_type: What it is declared to be, parameters included; empty where it is not.
        title: Title that its writer gave; empty for its own.
        language: Programming language that its writer gave, for code.
        tags: Labels.
        derived_from: URIs of the documents that it was written from.
    """

    source_uri: str
    content: bytes
    media_type: str = ""
    title: str = ""
    language: str = ""
    tags: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Digest of all that decides about what is stored, but for labels."""
        told = hashlib.sha256(self.content)
        for part in (CONVERTER, self.media_type, self.title, self.language, file_name(self.source_uri)):
            told.update(b"\x00" + part.encode())
        return told.hexdigest()


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    """A chunk and its terms, those of its breadcrumb among them."""

    chunk: Chunk
    term_ids: list[int]
    dl: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is stored of a document."""

    kind: Kind
    language: str
    title: str
    text: str
    pages: int
    sections: list[Section]
    chunks: list[PreparedChunk]


def prepare(source: Source, bounds: Bounds) -> Prepared:
    """Returns what is stored of a document.

    Raises:
        Unconvertible: It cannot be read, holds no text, or passes a bound.
    """
    media_type, charset = _split(source.media_type)
    name = file_name(source.source_uri)
    kind = kind_of(source.content, media_type, name)
    converted = _convert(kind, source, charset, name, bounds)
    check_length(converted.text, bounds)
    if not converted.text.strip():
        raise Unconvertible("The document holds no text.")
    title = one_line(source.title or converted.title or name or source.source_uri)
    sections = sections_of(converted.text, converted.headings, title, source.source_uri)
    chunks = [_analysed(chunk, sections, converted.text) for chunk in chunks_of(converted.text, sections)]
    return Prepared(kind, converted.language, title, converted.text, converted.pages, sections, chunks)


def embedded_text(breadcrumb: str, text: str) -> str:
    """Returns what is embedded of a chunk: where it stands, and what it says."""
    return f"{breadcrumb}\n{text.strip()}"


def _analysed(chunk: Chunk, sections: list[Section], text: str) -> PreparedChunk:
    section = sections[chunk.section]
    # Its own heading stands in its text already.
    above = section.heading_path[:-1] if section.heading and chunk.start == section.start else section.heading_path
    terms = analyze_text("\n".join([*above, text[chunk.start : chunk.end]]))
    return PreparedChunk(chunk, terms.term_ids, terms.dl)


def _convert(kind: Kind, source: Source, charset: str, name: str, bounds: Bounds) -> Converted:
    """Converts; each converter's libraries are loaded only where a document needs them."""
    from loom_memory.knowledge.domain.converters.decoding import decoded

    if kind is Kind.PDF:
        from loom_memory.knowledge.domain.converters.pdf import from_pdf

        return from_pdf(source.content, bounds)
    if kind is Kind.DOCX:
        from loom_memory.knowledge.domain.converters.docx import from_docx

        return from_docx(source.content, bounds)
    text = decoded(source.content, charset, is_html=kind is Kind.HTML)
    if kind is Kind.HTML:
        from loom_memory.knowledge.domain.converters.html import from_html

        return from_html(text, bounds)
    check_length(text, bounds)
    if kind is Kind.MARKDOWN:
        from loom_memory.knowledge.domain.converters.markdown import from_markdown

        return from_markdown(text)
    if kind is Kind.CODE:
        from loom_memory.knowledge.domain.converters.code import from_code

        return from_code(text, name, source.language)
    from loom_memory.knowledge.domain.converters.plain import from_text

    return from_text(text)


def _split(media_type: str) -> tuple[str, str]:
    """Returns a media type without parameters, and its charset."""
    stated, *parameters = (part.strip() for part in media_type.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().casefold() == "charset":
            return stated, value.strip().strip("\"'")
    return stated, ""
