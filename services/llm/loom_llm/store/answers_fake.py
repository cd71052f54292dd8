"""The cache's tables in memory; for tests."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from loom_common.errors import BackendUnavailable
from loom_llm.store.answers import Found, KeptAnswer, Place


class FakeAnswers:
    """Keeps answers in a dictionary. Does what `AnswerRepository` does."""

    def __init__(self) -> None:
        self.kept: dict[Place, KeptAnswer] = {}
        self.erasures: list[tuple[str, str, str, datetime]] = []
        self.away = False
        """Whether every method fails, as with a database that cannot be reached."""
        self.reads = 0

    async def read(self, place: Place, now: datetime, timeout_s: float) -> Found | None:
        """See `AnswerRepository.read`."""
        self.reads += 1
        self._require()
        found = self.kept.get(place)
        if found is None or found.expires_at <= now:
            return None
        return Found(replace(found.result, from_cache=True), found.expires_at)

    async def keep(self, answer: KeptAnswer) -> None:
        """See `AnswerRepository.keep`."""
        self._require()
        self.kept[answer.place] = answer

    async def forget(self, place: Place) -> None:
        """See `AnswerRepository.forget`."""
        self._require()
        self.kept.pop(place, None)

    async def erase(self, org: str, namespace: str, keys: Sequence[str], tags: Sequence[str]) -> int:
        """See `AnswerRepository.erase`."""
        self._require()
        gone = [
            place
            for place, row in self.kept.items()
            if place.org == org
            and namespace in row.namespaces
            and (set(keys) & set(row.window_keys) or set(tags) & set(row.tags))
        ]
        for place in gone:
            del self.kept[place]
        return len(gone)

    async def mark_erased(self, org: str, namespace: str, marks: Sequence[str], now: datetime) -> None:
        """See `AnswerRepository.mark_erased`."""
        self._require()
        self.erasures.extend((org, namespace, mark, now) for mark in marks)

    async def erased(self, org: str, since: datetime) -> set[tuple[str, str]]:
        """See `AnswerRepository.erased`."""
        self._require()
        return {(namespace, mark) for of, namespace, mark, at in self.erasures if of == org and at >= since}

    def _require(self) -> None:
        if self.away:
            raise BackendUnavailable("The database cannot be reached.")
