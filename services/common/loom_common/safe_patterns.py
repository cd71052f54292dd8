"""Regular expressions that others wrote, run in time proportional to the text, whatever they say."""

from collections.abc import Iterable, Iterator
from typing import Final

import re2

MAX_PATTERN_CHARS: Final = 1_000
"""Longest pattern. Source: chosen; a longer one is a list that belongs into several."""

# Source: chosen. What a pattern may take as a program; repetitions of repetitions would need more.
_MAX_MEMORY_BYTES: Final = 1 << 20
# Source: chosen. Some hundred patterns take a few MB of it; what is left keeps states between texts.
_SET_MEMORY_BYTES: Final = 64 << 20


class PatternRefused(ValueError):
    """A pattern that RE2 does not take; says why."""


class SafePattern:
    """One pattern of RE2's syntax: no look-around and no back-references, so that no text takes long."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        """Compiles it.

        Raises:
            PatternRefused: It is no such pattern.
        """
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _MAX_MEMORY_BYTES
        options.case_sensitive = not ignore_case
        try:
            self._pattern = re2.compile(pattern, options)
        except re2.error as error:
            said = error.args[0] if error.args else ""
            raise PatternRefused(said.decode() if isinstance(said, bytes) else str(said)) from None
        self.pattern = pattern
        self.ignores_case = ignore_case

    @property
    def steps_per_char(self) -> int:
        """Returns the most steps that one character of a text may take: the size of the compiled program."""
        return int(self._pattern.programsize)

    def is_in(self, text: str) -> bool:
        """Says whether it matches anywhere in a text."""
        return self._pattern.search(text) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields begin and end of each match, in code points, end out; empty ones are left out."""
        for match in self._pattern.finditer(text):
            begin, end = match.span()
            if end > begin:
                yield begin, end


class SafePatternSet:
    """Many patterns looked for in one pass, which costs about as much as one: most texts match none of them."""

    def __init__(self, patterns: Iterable[SafePattern]) -> None:
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _SET_MEMORY_BYTES
        self._set = re2.Set.SearchSet(options)
        for pattern in patterns:
            self._set.Add(f"(?i:{pattern.pattern})" if pattern.ignores_case else pattern.pattern)
        self._set.Compile()

    def matching(self, text: str) -> list[int]:
        """Returns the places of the patterns that match anywhere in a text, in order."""
        return sorted(self._set.Match(text) or ())
