"""What a converter gives, what it may use, and how it refuses."""

from collections.abc import Sequence
from dataclasses import dataclass

from loom_memory.knowledge.domain.sections import Heading


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a conversion may use.

    Attributes:
        chars: Most code points of the text.
        pages: Most pages of a PDF.
        unpacked_bytes: Most bytes that a packed file may unpack to.
    """

    chars: int = 2_000_000
    pages: int = 2_000
    unpacked_bytes: int = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Converted:
    """The text of a document.

    Attributes:
        text: The whole of it.
        headings: In order of their offsets in the text.
        title: What the document calls itself; empty where it does not.
        language: Programming language, for code.
        pages: Number of pages, for PDF.
    """

    text: str
    headings: Sequence[Heading] = ()
    title: str = ""
    language: str = ""
    pages: int = 0


class Unconvertible(Exception):
    """A document cannot be read. The text is for its owner: what is wrong, and what to do.

    Attributes:
        too_large: Whether it passed a bound, and is not broken.
    """

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


def check_length(text: str, bounds: Bounds) -> None:
    """Returns where a text is within its bound.

    Raises:
        Unconvertible: It is longer.
    """
    if len(text) > bounds.chars:
        raise too_long(bounds)


def too_long(bounds: Bounds) -> Unconvertible:
    """Returns the refusal of a text that is too long."""
    return Unconvertible(
        f"The document has more than {bounds.chars:,} characters of text. Split it into several.", too_large=True
    )
