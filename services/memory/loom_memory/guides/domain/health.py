"""What a namespace holds and how well it is kept, in numbers."""

from collections.abc import Sequence
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict

# Source: chosen. Below this share what ended is history as it should be; above it searches look at little that holds.
_MOST_ENDED: Final = 0.5
_MANY: Final = 50
# Source: chosen. A queue of minutes is normal; more than this is one that nobody works on.
_MOST_QUEUED: Final = 100


class NamedCount(BaseModel):
    """Counts what has one name."""

    model_config = ConfigDict(frozen=True)

    name: str
    count: int


class Health(BaseModel):
    """The numbers; `shown_month` is None where reads are not recorded."""

    model_config = ConfigDict(frozen=True)

    memories: int = 0
    kinds: tuple[NamedCount, ...] = ()
    users: int = 0
    sessions: int = 0
    agents: int = 0
    pinned: int = 0
    ended: int = 0
    written_week: int = 0
    shown_month: int | None = None
    open_conflicts: int = 0
    missing_vectors: int = 0
    documents: int = 0
    queued: int = 0
    last_write_at: AwareDatetime | None = None


class HealthSnapshot(BaseModel):
    """The numbers as they were at one moment."""

    model_config = ConfigDict(frozen=True)

    computed_at: AwareDatetime
    health: Health


def complaints(health: Health) -> Sequence[str]:
    """Returns what an agent should know before it relies on the namespace; nothing where all is well."""
    said = []
    if health.missing_vectors:
        said.append(f"{health.missing_vectors} memories have no vectors yet and are found by their words alone.")
    if health.queued > _MOST_QUEUED:
        said.append(f"{health.queued} conversations wait to be read for facts: what they say may be missing.")
    if health.open_conflicts:
        said.append(f"{health.open_conflicts} contradictions between memories wait to be resolved.")
    if health.memories >= _MANY and health.ended > health.memories * _MOST_ENDED:
        said.append(f"{health.ended} of {health.memories} memories no longer hold.")
    return said
