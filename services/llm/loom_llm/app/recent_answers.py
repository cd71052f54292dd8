"""Kept answers in memory, for a process that no other one can erase behind."""

from collections import OrderedDict
from datetime import datetime
from typing import Final

from loom_llm.domain.messages import LLMResult
from loom_llm.store.answers import Found, Place

# Source: chosen. Longer answers are rare, and reading one from the database costs little beside its length.
_MAX_CHARS: Final = 16_384


class RecentAnswers:
    """The answers used last, until their time is over. An erasure forgets all of its organisation's."""

    def __init__(self, most: int) -> None:
        """Takes how many are held; 0 for none."""
        self._most = most
        self._held: OrderedDict[Place, Found] = OrderedDict()
        self.forgettings = 0
        """Rises with each erasure: what was read before one must not be held after it."""

    def get(self, place: Place, now: datetime) -> LLMResult | None:
        """Returns the answer that is held for a place and not expired, or None."""
        found = self._held.get(place)
        if found is None or found.expires_at <= now:
            return None
        self._held.move_to_end(place)
        return found.result

    def put(self, place: Place, found: Found) -> None:
        """Holds an answer; the one that was not used for longest gives way."""
        if len(found.result.text) > _MAX_CHARS:
            return
        self._held[place] = found
        self._held.move_to_end(place)
        while len(self._held) > self._most:
            self._held.popitem(last=False)

    def forget(self, org: str) -> None:
        """Forgets the answers of an organisation."""
        self.forgettings += 1
        for place in [place for place in self._held if place.org == org]:
            del self._held[place]
