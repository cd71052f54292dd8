"""Working memory: the few things that a session keeps in mind, each under a label, for as long as they matter."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

MAX_ITEMS: Final = 64
"""Most items of one session. Source: chosen; what is kept in mind is a handful, and more of it is a memory."""

MAX_VALUE_BYTES: Final = 8_192
MAX_SESSION_BYTES: Final = 65_536
"""Bytes of labels and values that one session holds. Source: chosen; above what a prompt has room for."""

DEFAULT_TTL_S: Final = 86_400
MIN_TTL_S: Final = 60
MAX_TTL_S: Final = 2_592_000


class Session(NamedTuple):
    """Names a session; one of no user has an empty one."""

    user_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class WorkingItem:
    """One version of an item.

    Attributes:
        version: Grows with each new value under the label.
        updated_at: When the value was written; a write of the same value keeps it.
        expires_at: When it is gone.
        kept_until: When the engine may remove its row.
        is_removed: Whether this version says that there is no such item.
    """

    label: str
    value: str
    session: Session
    version: int
    actor: str
    updated_at: datetime
    expires_at: datetime
    kept_until: datetime
    is_removed: bool = False

    @property
    def size(self) -> int:
        """Bytes that it takes of its session's room."""
        return size_of(self.label, self.value)

    def is_live(self, now: datetime) -> bool:
        """Says whether it is there at a moment."""
        return not self.is_removed and self.expires_at > now


def size_of(label: str, value: str) -> int:
    """Returns the bytes that a label and a value take."""
    return len(label.encode("utf-8", "surrogatepass")) + len(value.encode("utf-8", "surrogatepass"))


def why_no_room(others: Iterable[WorkingItem], label: str, value: str) -> tuple[str, str] | None:
    """Returns the field and the reason why an item does not fit beside others, or None where it does."""
    held = list(others)
    if len(held) >= MAX_ITEMS:
        return "label", f"would be more than {MAX_ITEMS} items of the session; clear some first"
    if sum(item.size for item in held) + size_of(label, value) > MAX_SESSION_BYTES:
        return "value", f"would make the session's items more than {MAX_SESSION_BYTES} bytes; clear some first"
    return None
