"""Finds what is sensitive in a text: by patterns and checksums alone, the same every time and without a model."""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, NamedTuple

from loom_common.safe_patterns import SafePatternSet
from loom_memory.domain.blacklist import UNSEEN
from loom_memory.domain.memory import Sensitivity

if TYPE_CHECKING:
    from loom_memory.domain.recognisers import Recogniser

RULES: Final = "1"
"""Changes with what is found here."""

RECOGNISER: Final = ",".join(
    [f"loom-{RULES}", *(f"{name}-{version(name)}" for name in ("detect-secrets", "python-stdnum", "phonenumbers"))]
)
"""What looked at a text: kept on its row, so that older rows can be looked at again."""


class Finding(NamedTuple):
    """Something sensitive in a text: what it is, how sensitive, and its code points, end out."""

    name: str
    sensitivity: Sensitivity
    begin: int
    end: int


def findings(text: str, *, personal: bool = True, secrets: bool = True) -> list[Finding]:
    """Returns what is sensitive in a text, in order, none over another.

    Args:
        text: The text.
        personal: Whether what names, reaches or pays for a person is looked for.
        secrets: Whether keys, tokens and passwords are.
    """
    wanted = {Sensitivity.PERSONAL: personal, Sensitivity.SECRET: secrets}
    recognisers = _recognisers()
    plain, places = _plain(text)
    found = [
        Finding(recogniser.name, recogniser.sensitivity, places[begin], places[begin + length - 1] + 1)
        for recogniser in map(recognisers.__getitem__, _patterns().matching(plain))
        if wanted[recogniser.sensitivity]
        for begin, end in recogniser.pattern.spans(plain)
        if (length := recogniser.length(plain[begin:end]))
    ]
    # The longer of two that overlap, a secret before anything else of its length: an address inside a URL with a
    # password is part of the password's finding.
    found.sort(key=lambda finding: (finding.begin, -finding.end, -finding.sensitivity.weight, finding.name))
    kept: list[Finding] = []
    for finding in found:
        if not kept or finding.begin >= kept[-1].end:
            kept.append(finding)
        elif finding.sensitivity.weight > kept[-1].sensitivity.weight:
            kept[-1] = finding._replace(begin=kept[-1].begin, end=max(finding.end, kept[-1].end))
        else:
            kept[-1] = kept[-1]._replace(end=max(finding.end, kept[-1].end))
    return kept


def redacted(text: str, found: Iterable[Finding]) -> str:
    """Returns a text with the name of each finding in its place, in brackets."""
    parts, end = [], 0
    for finding in found:
        parts += [text[end : finding.begin], f"[{finding.name}]"]
        end = finding.end
    return "".join([*parts, text[end:]])


def prepare() -> None:
    """Loads the recognisers; whoever holds an event loop calls it in a thread before the first text."""
    _patterns()


def is_prepared() -> bool:
    """Says whether a text is looked through without loading anything."""
    return _patterns.cache_info().currsize > 0


def _plain(text: str) -> tuple[str, Sequence[int]]:
    """Returns a text in the letters that patterns are written in, and the place of each of these in the text.

    Wide letters and digits, spaces that do not break, hyphens of print and letters that show nothing are other
    spellings of the same number or key.
    """
    if text.isascii():
        return text, range(len(text))
    letters: list[str] = []
    places: list[int] = []
    for place, letter in enumerate(text):
        plain = letter if letter.isascii() else _plain_letter(letter)
        if plain:
            letters.append(plain)
            places.append(place)
    return "".join(letters), places


@lru_cache(maxsize=4_096)
def _plain_letter(letter: str) -> str:
    if letter in UNSEEN:
        return ""
    category = unicodedata.category(letter)
    if category in {"Pd", "Zs"}:
        return "-" if category == "Pd" else " "
    folded = unicodedata.normalize("NFKC", letter)
    return folded if len(folded) == 1 else letter


@lru_cache(maxsize=1)
def _recognisers() -> "tuple[Recogniser, ...]":
    # Here, so that a start need not wait for what the first write needs.
    from loom_memory.domain.recognisers import recognisers

    return recognisers()


@lru_cache(maxsize=1)
def _patterns() -> SafePatternSet:
    """All patterns together: most texts match none, and are passed over at the cost of about one."""
    return SafePatternSet(recogniser.pattern for recogniser in _recognisers())
