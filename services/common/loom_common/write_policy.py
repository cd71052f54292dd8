"""What a namespace lets be written to it, as its owner set it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from loom_common.errors import InvalidArgument
from loom_common.safe_patterns import PatternRefused, SafePattern


class Treatment(StrEnum):
    """What becomes of a text in which something sensitive is found."""

    OFF = "off"
    """It is not looked for."""
    MARK = "mark"
    """The text is stored and marked."""
    REDACT = "redact"
    """What was found is replaced by its name before anything is stored."""
    BLOCK = "block"
    """Nothing is stored."""


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """The rules of one namespace.

    Attributes:
        blocked_words: Words and phrases that no memory may hold, in any case.
        blocked_patterns: Patterns of RE2 that none may match.
        personal: What becomes of what identifies, reaches or pays for a person.
        secrets: What becomes of keys, tokens and passwords.
        duplicates: Whether a memory that says what another says is stored as a reinforcement of that one.
        conflicts: Whether a memory that contradicts an older one ends that one's validity.
    """

    blocked_words: tuple[str, ...] = ()
    blocked_patterns: tuple[str, ...] = ()
    personal: Treatment = Treatment.MARK
    secrets: Treatment = Treatment.MARK
    duplicates: bool = True
    conflicts: bool = True

    def to_json(self) -> str:
        """Returns it as it is stored; empty for the default."""
        return "" if self == WritePolicy() else json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "WritePolicy":
        """Returns what `to_json` wrote; what a newer build added is passed over."""
        if not text:
            return cls()
        told = json.loads(text)
        default = cls()
        return cls(
            blocked_words=tuple(told.get("blocked_words", ())),
            blocked_patterns=tuple(told.get("blocked_patterns", ())),
            personal=Treatment(told.get("personal", default.personal)),
            secrets=Treatment(told.get("secrets", default.secrets)),
            duplicates=bool(told.get("duplicates", True)),
            conflicts=bool(told.get("conflicts", True)),
        )


ANYTHING: Final = WritePolicy()
"""The policy of a namespace that has none of its own: what is sensitive is marked."""


def require_patterns(patterns: Sequence[str], field: str) -> None:
    """Raises InvalidArgument naming the first pattern that cannot be used."""
    for place, pattern in enumerate(patterns):
        try:
            SafePattern(pattern)
        except PatternRefused as error:
            raise InvalidArgument.of(f"{field}[{place}]", f"is no pattern of RE2: {error}") from None
