"""Characters as models send them: a pair of surrogates may come in halves, and no half can be sent on or stored."""

import re
from collections.abc import Hashable
from typing import Final

_HALF: Final = re.compile(r"[\ud800-\udfff]")
_FIRST_HALF: Final = re.compile(r"[\ud800-\udbff]\Z")


def whole(text: str) -> str:
    """Returns `text` with halves that stand beside each other joined, and all others replaced by U+FFFD."""
    if text.isascii() or not _HALF.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Halves:
    """Joins the halves of characters that come in two pieces of a text. Several texts may come side by side."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, str] = {}

    def joined(self, of: Hashable, piece: str) -> str:
        """Returns the next piece of the text that `of` names; a half at its end waits for the next one."""
        piece = self._waiting.pop(of, "") + piece
        if (half := _FIRST_HALF.search(piece)) is not None:
            self._waiting[of] = half[0]
            piece = piece[:-1]
        return whole(piece)

    def left(self, of: Hashable) -> str:
        """Returns what still waits at the end of a text, as whole characters; it waits no more."""
        return whole(self._waiting.pop(of, ""))
