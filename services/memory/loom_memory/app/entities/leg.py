"""The leg of a search that finds memories by whom and what they name."""

from collections.abc import Mapping, Sequence
from typing import Final

from cachetools import TTLCache

from loom_common.call import Scope
from loom_memory.domain.entities import fold, named_in
from loom_memory.domain.memory import Filter, Identity
from loom_memory.store.entities import EntityRepository

# A memory that names what the question names is about it, and need not answer it. Source: chosen; it stays under what
# counts as sure.
_MOST_SURE: Final = 0.45
_MAX_NAMES: Final = 32

REMEMBERED_S: Final = 10.0
"""How long what was read of names is held: most questions of a namespace name the same few, and the worker that finds
names comes later than that. What was deleted meanwhile is not shown: every search reads the rows themselves.

Source: chosen."""

# Source: chosen; some tens of MB at the most.
_MAX_KNOWN: Final = 20_000
_MAX_SCOPES: Final = 200
_MAX_FOUND: Final = 2_000
_LONGEST_NAME: Final = 3


class StoredEntities:
    """Reads the tables of entities. An `EntityLeg`."""

    def __init__(self, entities: EntityRepository) -> None:
        self._entities = entities
        self._names: TTLCache[Scope, frozenset[str] | None] = TTLCache(_MAX_SCOPES, REMEMBERED_S)
        self._found: TTLCache[tuple[object, ...], Mapping[Identity, float]] = TTLCache(_MAX_FOUND, REMEMBERED_S)

    async def find(
        self, scope: Scope, wanted: Filter, text: str, names: Sequence[str], limit: int
    ) -> Mapping[Identity, float]:
        """See `EntityLeg.find`."""
        asked = _names(text, names)
        known = await self._known(scope) if asked else None
        if known is not None:
            asked = [name for name in asked if name in known]
        if not asked:
            return {}
        key = (scope, wanted.user_id, wanted.session_id, limit, *sorted(asked))
        if (found := self._found.get(key)) is None:
            weights = await self._entities.find(
                scope, asked, user_id=wanted.user_id, session_id=wanted.session_id, limit=limit
            )
            found = {identity: _MOST_SURE * weight for identity, weight in weights.items()}
            self._found[key] = found
        return found

    async def _known(self, scope: Scope) -> frozenset[str] | None:
        """Returns the folded names of a namespace; None where they are too many to be held."""
        if scope not in self._names:
            names = await self._entities.names(scope, _MAX_KNOWN + 1)
            self._names[scope] = None if len(names) > _MAX_KNOWN else frozenset(names)
        return self._names.get(scope)


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
