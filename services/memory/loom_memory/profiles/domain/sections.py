"""Sections of profiles: what is known of a user, of an agent, or of a whole namespace, each under a label."""

import hashlib
import json
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from loom_memory.domain.memory import Identity

PLANE: Final = "profile"
"""Name of the plane among vectors."""

MAX_LABEL_CHARS: Final = 128
MAX_VALUE_BYTES: Final = 4_096
MAX_SECTIONS: Final = 100
"""Most sections of one owner. Source: chosen; a profile is what a prompt has room for."""

_ID_BYTES: Final = 15


class Origin(StrEnum):
    """Where a version of a section comes from."""

    SET = "set"
    """A caller wrote it."""
    FOLD = "fold"
    """It was taken from memories."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a section is about; an empty user or agent is every one of the namespace."""

    user_id: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class ProfileSection:
    """One version of a section.

    Attributes:
        version: 1, 2, 3 and so on.
        evidence: Memories that the value was taken from.
        is_removed: Whether this version says that there is no such section.
    """

    label: str
    value: str
    user_id: str
    agent: str
    updated_at: datetime
    version: int
    origin: Origin = Origin.SET
    evidence: tuple[Identity, ...] = ()
    actor: str = ""
    is_removed: bool = False

    @property
    def owner(self) -> Owner:
        """Whom it is about."""
        return Owner(self.user_id, self.agent)

    @property
    def id(self) -> str:
        """What names it among the namespace's sections."""
        return section_id(self.owner, self.label)

    @property
    def text(self) -> str:
        """What is embedded and searched of it."""
        return f"{self.label}: {self.value}"


def label_of(text: str) -> str:
    """Returns a label as it is stored: on one line, without spaces around it.

    Raises:
        ValueError: Nothing is left, it is too long, or it holds what no line can.
    """
    label = " ".join(unicodedata.normalize("NFC", text).split())
    if not label:
        raise ValueError("is empty")
    if len(label) > MAX_LABEL_CHARS:
        raise ValueError(f"is longer than {MAX_LABEL_CHARS} characters")
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in label):
        raise ValueError("holds control characters")
    return label


def fold_label(label: str) -> str:
    """Returns a label as labels are compared: `Home city`, `home_city` and `home-city` are one."""
    folded = unicodedata.normalize("NFKC", label).casefold()
    return " ".join("".join(letter if letter.isalnum() else " " for letter in folded).split()) or folded


def fold_value(value: str) -> str:
    """Returns a value as values are compared: by its letters and digits alone."""
    folded = unicodedata.normalize("NFKC", value).casefold()
    return " ".join("".join(letter if letter.isalnum() else " " for letter in folded).split()) or folded


def section_id(owner: Owner, label: str) -> str:
    """Returns the identifier of the section that an owner has under a label."""
    told = json.dumps([owner.user_id, owner.agent, fold_label(label)])
    return f"s-{hashlib.blake2b(told.encode('utf-8', 'surrogatepass'), digest_size=_ID_BYTES).hexdigest()}"
