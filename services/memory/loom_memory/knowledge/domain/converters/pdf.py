"""PDF: the text of its pages, with the headings of its outline, else a heading for each page."""

import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pypdf
from pypdf.errors import LimitReachedError, PyPdfError

from loom_memory.knowledge.domain.converters.converted import Bounds, Converted, Unconvertible, too_long
from loom_memory.knowledge.domain.converters.html import squeezed
from loom_memory.knowledge.domain.sections import Heading, one_line

_MOST_OUTLINED: Final = 5_000
_BROKEN: Final = "The PDF is broken and cannot be read. Open it in a viewer and save it anew."


def from_pdf(content: bytes, bounds: Bounds) -> Converted:
    """Returns the text of a PDF.

    Raises:
        Unconvertible: It is broken, locked by a password, holds no text, or passes a bound.
    """
    try:
        reader = pypdf.PdfReader(io.BytesIO(content), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unconvertible("The PDF is locked by a password. Save it without one.")
        count = len(reader.pages)
        if count > bounds.pages:
            raise Unconvertible(
                f"The PDF has {count:,} pages, and {bounds.pages:,} are read. Split it into several.", too_large=True
            )
        pages = _pages(reader, bounds)
        outlined = _outline(reader)
    except Unconvertible:
        raise
    except LimitReachedError:
        raise Unconvertible(
            "The PDF takes more to read than is allowed. Split it into several.", too_large=True
        ) from None
    except RecursionError:
        raise Unconvertible("The PDF refers to itself without end and cannot be read.") from None
    # What a broken file makes the library raise is of many kinds: each of them says that it is broken.
    except (PyPdfError, ValueError, KeyError, IndexError, TypeError, AttributeError, OSError, ArithmeticError):
        raise Unconvertible(_BROKEN) from None
    if not any(page.strip() for page in pages):
        raise Unconvertible(
            "The PDF holds no text: its pages are probably pictures. Run text recognition over it and send the result."
        )
    return _joined(pages, outlined, _title(reader))


def _pages(reader: pypdf.PdfReader, bounds: Bounds) -> list[str]:
    found: list[str] = []
    length = 0
    for page in reader.pages:
        text = page.extract_text() or ""
        text = text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "").replace("\r\n", "\n")
        text = squeezed(text.replace("\r", "\n"))
        length += len(text) + 2
        if length > bounds.chars:
            raise too_long(bounds)
        found.append(text)
    return found


def _outline(reader: pypdf.PdfReader) -> Mapping[int, list[tuple[int, str]]]:
    """Returns the headings of each page as the outline has them; a broken outline is none."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    try:
        waiting: list[tuple[int, Any]] = [(1, item) for item in reversed(reader.outline)]
        for _ in range(_MOST_OUTLINED):
            if not waiting:
                break
            level, item = waiting.pop()
            if isinstance(item, list):
                waiting.extend((level + 1, below) for below in reversed(item))
                continue
            page = reader.get_destination_page_number(item)
            title = one_line(str(item.title).replace("\x00", ""))
            if page is not None and page >= 0 and title:
                found[page].append((min(level, 6), title))
    except (PyPdfError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return {}
    return found


def _joined(pages: Sequence[str], outlined: Mapping[int, list[tuple[int, str]]], title: str) -> Converted:
    parts: list[str] = []
    headings: list[Heading] = []
    length = 0
    for number, page in enumerate(pages):
        if not outlined:
            lead = f"Page {number + 1}\n"
            headings.append(Heading(2, lead.strip(), length, length + len(lead)))
            page = lead + page
        else:
            headings.extend(_placed(page, outlined.get(number, ()), length))
        part = f"{page}\n\n" if number + 1 < len(pages) else page
        parts.append(part)
        length += len(part)
    return Converted("".join(parts), headings, title, pages=len(pages))


def _placed(page: str, titles: Sequence[tuple[int, str]], offset: int) -> list[Heading]:
    """Returns the headings of a page where its text says them, in order; one that it does not say is left out."""
    found: list[Heading] = []
    lines: list[tuple[int, int, str]] = []
    start = 0
    for line in page.splitlines(keepends=True):
        lines.append((start, start + len(line), " ".join(line.split()).casefold()))
        start += len(line)
    place = 0
    for level, title in titles:
        wanted = " ".join(title.split()).casefold()
        for at in range(place, len(lines)):
            if lines[at][2].endswith(wanted) and len(lines[at][2]) <= len(wanted) + 12:
                found.append(Heading(level, title, offset + lines[at][0], offset + lines[at][1]))
                place = at + 1
                break
    return found


def _title(reader: pypdf.PdfReader) -> str:
    try:
        return one_line(str((reader.metadata and reader.metadata.title) or "").replace("\x00", ""))
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
