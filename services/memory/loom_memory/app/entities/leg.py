"""The leg of a search that finds memories by whom and what they name."""

from collections.abc import Mapping, Sequence
from typing import Final

from loom_common.call import Scope
from loom_memory.domain.entities import fold, named_in
from loom_memory.domain.memory import Filter, Identity
from loom_memory.store.entities import EntityRepository

# A memory that names what the question names is about it, and need not answer it. Source: chosen; it stays under what
# counts as sure.
_MOST_SURE: Final = 0.45
_MAX_NAMES: Final = 32
_LONGEST_NAME: Final = 3


class StoredEntities:
    """Reads the tables of entities. An `EntityLeg`."""

    def __init__(self, entities: EntityRepository) -> None:
        self._entities = entities

    async def find(
        self, scope: Scope, wanted: Filter, text: str, names: Sequence[str], limit: int
    ) -> Mapping[Identity, float]:
        """See `EntityLeg.find`."""
        asked = _names(text, names)
        if not asked:
            return {}
        found = await self._entities.find(
            scope, asked, user_id=wanted.user_id, session_id=wanted.session_id, limit=limit
        )
        return {identity: _MOST_SURE * weight for identity, weight in found.items()}


def _names(text: str, names: Sequence[str]) -> list[str]:
    """Returns the folded names that a question may mean: what is written like one, and runs of its words."""
    written = [fold(name) for name in names]
    for mention in named_in(text):
        written += [fold(mention.name), *(fold(alias) for alias in mention.aliases)]
    words = [fold(word.strip(".,;:!?()[]\"'“”")) for word in text.split()][:_MAX_NAMES]
    runs = [
        " ".join(words[first : first + length])
        for length in range(_LONGEST_NAME, 0, -1)
        for first in range(len(words) - length + 1)
    ]
    found = [name for name in dict.fromkeys([*written, *runs]) if len(name) > 1]
    return found[: 4 * _MAX_NAMES]
