"""Plain text: as it is; a line that is underlined is a heading."""

from typing import Final

import regex

from loom_memory.knowledge.domain.converters.converted import Converted
from loom_memory.knowledge.domain.sections import Heading, one_line

_UNDERLINED: Final = regex.compile(
    r"^(?P<title>[^\s=\-~^#*+][^\n]{0,200})\n(?P<mark>[=\-~^])(?P=mark){2,}[ \t]*$", regex.MULTILINE
)
_LEVELS: Final = {"=": 1, "-": 2, "~": 3, "^": 4}


def from_text(text: str) -> Converted:
    """Returns a plain text; its title is its first heading of level 1."""
    headings = [
        Heading(_LEVELS[found["mark"]], one_line(found["title"]), found.start(), min(found.end() + 1, len(text)))
        for found in _UNDERLINED.finditer(text)
    ]
    return Converted(text, headings, next((heading.title for heading in headings if heading.level == 1), ""))
