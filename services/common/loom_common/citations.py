"""Citations of memories inside answers: `[memory:<key>@v<version>]`.

A key runs to the last `@v<digits>]` before the closing bracket. What would end a citation early, a closing bracket or a
line break, is percent-encoded by whatever renders one, and the percent sign with it, so that every key comes back as it
was.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

# Everything but these stays readable as it is.
_ENCODED: Final = re.compile(r"[%\]\[\x00-\x1f\x7f\x85\u2028\u2029]")
# No bracket inside: what is no citation is read once, however often it begins like one.
_MEMORY: Final = re.compile(r"\[memory:([^\[\]\n\r]{1,6144})@v([0-9]{1,9})\]")


@dataclass(frozen=True, slots=True, order=True)
class MemoryCitation:
    """Names one version of a memory by its key."""

    key: str
    version: int

    def __str__(self) -> str:
        """Returns it as it stands in an answer."""
        return f"[memory:{encode(self.key)}@v{self.version}]"


def encode(text: str) -> str:
    """Returns a key or a URI as it may stand inside a citation."""
    return _ENCODED.sub(lambda found: quote(found[0], safe=""), text)


def memory_citations(answer: str) -> list[MemoryCitation]:
    """Returns the citations of memories in an answer, in order, each as often as it stands there."""
    return [MemoryCitation(unquote(found[1]), int(found[2])) for found in _MEMORY.finditer(answer)]


def replaced_citations(answer: str, kept: frozenset[MemoryCitation]) -> str:
    """Returns the answer with every citation removed that is not among those to keep."""
    return _MEMORY.sub(
        lambda found: found[0] if MemoryCitation(unquote(found[1]), int(found[2])) in kept else "", answer
    )
