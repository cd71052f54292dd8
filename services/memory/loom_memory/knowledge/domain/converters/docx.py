"""DOCX: by way of HTML, its styles as headings, lists and tables; pictures are left out."""

import io
import zipfile
from typing import Final

import mammoth

from loom_memory.knowledge.domain.converters.converted import Bounds, Converted, Unconvertible
from loom_memory.knowledge.domain.converters.html import from_html

_STYLES: Final = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => p:fresh"
_MOST_MEMBERS: Final = 10_000
_MAIN: Final = "word/document.xml"
_BROKEN: Final = "The DOCX is broken and cannot be read. Open it in a word processor and save it anew."


def from_docx(content: bytes, bounds: Bounds) -> Converted:
    """Returns the text of a DOCX.

    Raises:
        Unconvertible: It is broken, or unpacks to more than its bound.
    """
    _check_packed(content, bounds)
    try:
        html = mammoth.convert_to_html(
            io.BytesIO(content), style_map=_STYLES, convert_image=mammoth.images.img_element(_no_image)
        ).value
    except RecursionError:
        raise Unconvertible("The DOCX is nested too deeply to be read.", too_large=True) from None
    # What a broken file makes the library raise is of many kinds, among them its parser's own.
    except Exception:  # noqa: BLE001
        raise Unconvertible(_BROKEN) from None
    return from_html(f"<html><body>{html}</body></html>", bounds)


def _check_packed(content: bytes, bounds: Bounds) -> None:
    """Refuses what unpacks to too much. The sizes in the directory bound what is read of each member."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            members = packed.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        raise Unconvertible(_BROKEN) from None
    if not any(member.filename == _MAIN for member in members):
        raise Unconvertible("The file is a ZIP archive and no DOCX: it has no word/document.xml.")
    if any(member.flag_bits & 1 for member in members):
        raise Unconvertible("The DOCX is locked by a password. Save it without one.")
    unpacked = sum(member.file_size for member in members)
    if unpacked > bounds.unpacked_bytes or len(members) > _MOST_MEMBERS:
        raise Unconvertible(
            f"The DOCX unpacks to {unpacked:,} bytes, and {bounds.unpacked_bytes:,} are read. Split it into several, "
            "without its pictures.",
            too_large=True,
        )


def _no_image(image: object) -> dict[str, str]:
    return {"src": ""}
