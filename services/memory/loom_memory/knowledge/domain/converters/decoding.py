"""Bytes to text: what a document says of its encoding, else UTF-8, and never a guess."""

import codecs
import re
from typing import Final

from loom_memory.knowledge.domain.converters.converted import Unconvertible

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META_CHARSET: Final = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:\-]{1,40})", re.IGNORECASE)
_META_BYTES: Final = 4096
# Encodings that turn bytes into text; Python has others, some of which unpack.
_TEXT_ENCODINGS: Final = re.compile(
    r"(utf-?(8|16|16le|16be|16-le|16-be)|us-?ascii|ascii|iso-?8859-\d{1,2}|latin-?1|windows-?125\d|cp125\d|koi8-[ru]"
    r"|shift[-_]?jis|cp932|windows-31j|euc-(jp|kr)|iso-2022-jp|gb2312|gbk|gb18030|big5(-hkscs)?|cp949|tis-620)"
)


def decoded(content: bytes, charset: str = "", *, is_html: bool = False) -> str:
    """Returns the text of a document, with line ends as newlines and without a byte order mark.

    Args:
        content: Its bytes.
        charset: Encoding that whoever sent it stated; a byte order mark counts for more.
        is_html: Whether the document may state its encoding itself, and is read as windows-1252 where it states none
            and is no UTF-8, as browsers do.

    Raises:
        Unconvertible: It is no text of that encoding, or holds NUL characters.
    """
    encoding, body = _encoding(content, charset, is_html=is_html)
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        if not (is_html and encoding == "utf-8"):
            raise Unconvertible(
                f"The document is not valid {encoding.upper()} at byte {error.start + len(content) - len(body)}. Save "
                "it as UTF-8, or state its charset in its media type."
            ) from None
        text = body.decode("windows-1252", "replace")
    if is_html:
        text = text.replace("\x00", "")
    elif "\x00" in text:
        raise Unconvertible(
            f"The document holds a NUL character at position {text.index(chr(0))}: it is no text, or its charset is "
            "another than the one stated."
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _encoding(content: bytes, charset: str, *, is_html: bool) -> tuple[str, bytes]:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return encoding, content[len(mark) :]
    stated = charset.strip().lower()
    if not stated and is_html:
        found = _META_CHARSET.search(content[:_META_BYTES])
        stated = found[1].decode("ascii").lower() if found else ""
    if not stated:
        return "utf-8", content
    if not _TEXT_ENCODINGS.fullmatch(stated):
        raise Unconvertible(f"The charset {stated[:40]!r} is not one that Loom reads. Save the document as UTF-8.")
    return codecs.lookup(stated).name, content
