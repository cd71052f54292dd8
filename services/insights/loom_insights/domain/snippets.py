"""The part of a section that answers a question best."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

LONGEST: Final = 400
"""Longest snippet, in characters."""

_RULE: Final = re.compile(r"^[\s|:\-]*$")
_FENCE: Final = re.compile(r"^\s*```")


def snippet(text: str, wanted: Collection[str], terms: Callable[[str], Sequence[str]]) -> str:
    """Returns lines around the first line that has most of the wanted terms, at most `LONGEST` characters.

    Args:
        text: Text of the section.
        wanted: Terms of the question.
        terms: Returns the terms of a line.
    """
    lines = [line.rstrip() for line in text.split("\n") if not _RULE.match(line) and not _FENCE.match(line)]
    if not lines:
        return ""
    # A long line of a table is worth no more than a short one that has as much.
    best = max(range(len(lines)), key=lambda place: (len(set(terms(lines[place])) & set(wanted)), -place))
    chosen, length = lines[best], len(lines[best])
    for line in lines[best + 1 :]:
        if length + 1 + len(line) > LONGEST:
            break
        chosen, length = f"{chosen}\n{line}", length + 1 + len(line)
    return chosen if len(chosen) <= LONGEST else chosen[: LONGEST - 1] + "…"
