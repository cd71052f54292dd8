"""The guide of a namespace."""

from dataclasses import dataclass
from datetime import datetime

from loom_common.call import Scope


@dataclass(frozen=True, slots=True)
class Guide:
    """One version of a guide; an empty text is its removal.

    Attributes:
        revision: 1, 2, 3 and so on; what callers see as the version.
        actor: Who wrote it: `human:` or `process:` and the token's subject.
    """

    scope: Scope
    text: str
    revision: int
    actor: str
    updated_at: datetime

    @property
    def is_removed(self) -> bool:
        """Whether this version says that there is no guide."""
        return not self.text
