"""Which of the engine's functions a statement may call: each is on one of two lists, and a new one is on neither.

What is allowed computes from its arguments alone. Refused is what reads beyond them (files, dictionaries, other tables,
settings, the server, its keys), waits, raises what it is told to, draws what no second run gives again, or takes memory
that no limit counts (`printf` with a width); and whatever nobody has looked at.
"""

import functools
import re
from importlib import resources
from typing import Final

# What aggregates may be combined with; the others give states, which are bytes of the engine's own.
_COMBINATORS: Final = re.compile(r"(?:If|Distinct|OrNull|OrDefault|Array|ForEach|ArgMin|ArgMax|Map)$")

# What the grammar makes of its own words; the engine lists them nowhere.
GRAMMAR: Final = frozenset({"lambda", "grouping", "exists", "untuple"})


@functools.cache
def allowed_functions() -> frozenset[str]:
    """Returns the functions that a statement may call."""
    return _names("functions_allowed.txt")


@functools.cache
def refused_functions() -> frozenset[str]:
    """Returns the functions that were looked at and are refused."""
    return _names("functions_refused.txt")


def is_allowed(name: str) -> bool:
    """Returns whether a statement may call a function, written in any case that the engine takes."""
    if name in GRAMMAR:
        return True
    if name in refused_functions():
        return False
    if name in allowed_functions() or name.lower() in _folded():
        return True
    base = _COMBINATORS.sub("", name)
    return base != name and is_allowed(base)


@functools.cache
def _folded() -> frozenset[str]:
    return frozenset(name.lower() for name in allowed_functions())


def _names(file: str) -> frozenset[str]:
    text = resources.files("loom_insights.domain").joinpath(file).read_text("utf-8")
    return frozenset(line for line in text.split() if line)
