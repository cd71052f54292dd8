"""Keys and tags that a query names outright."""

from dataclasses import dataclass
from typing import Final

import regex

MAX_NAMES: Final = 16
"""Most keys and most tags that one query is looked up by. Source: chosen; each is a point read."""

_MAX_KEY_CHARS: Final = 512
_QUOTED = regex.compile(r"[`\"“«']([^`\"”»']{1,512})[`\"”»']")
_TAG = regex.compile(r"(?:(?<![\w#])#|\btags?:\s*)([\p{L}\p{N}][\p{L}\p{N}_./:-]{0,63})")
_TOKEN = regex.compile(r"[^\s,;?!()\[\]{}`\"“”«»]+")
# What looks like a key and not like a word: joined by what joins keys, or with letters and digits together.
_LIKE_A_KEY = regex.compile(r"[/_:@#]|\w[.-]\w|\p{L}\d|\d\p{L}")


@dataclass(frozen=True, slots=True)
class NamedExactly:
    """Keys and tags to look for as they are written."""

    keys: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.keys or self.tags)


NOTHING_NAMED: Final = NamedExactly()


def named_exactly(query: str) -> NamedExactly:
    """Returns the keys and tags that a query may name; a plain sentence names none."""
    text = query.strip()
    keys = [text] if text and not regex.search(r"\s", text) else []
    keys += [match[1].strip() for match in _QUOTED.finditer(text)]
    for token in _TOKEN.findall(text):
        bare = token.strip("'’.:")
        if _LIKE_A_KEY.search(bare):
            keys.append(bare)
    tags = [match[1].rstrip(".:") for match in _TAG.finditer(text)]
    fitting = [key for key in keys if 0 < len(key) <= _MAX_KEY_CHARS]
    return NamedExactly(
        tuple(dict.fromkeys(fitting))[:MAX_NAMES],
        tuple(dict.fromkeys(tag for tag in tags if tag))[:MAX_NAMES],
    )
