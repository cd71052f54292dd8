"""A writer that keeps memories in a dictionary, for tests of what leads to one."""

from collections.abc import Sequence
from datetime import UTC, datetime

from loom_common.call import Scope, current
from loom_common.errors import LoomError
from loom_memory.app.drafts import UNCHANGED, Draft, Outcome, Written
from loom_memory.domain.memory import Content, Identity


class FakeWriter:
    """A `Writer` without a store.

    Attributes:
        kept: Content of each memory, by namespace and identity.
        actors: Who wrote each.
        failure: Raised by every call while set.
        refused: Why a value is refused.
        crash_after: Writes left before a call ends in the middle, as a killed process does; None for never.
        organisations: Organisation that each call was made for, as its attribution says.
    """

    def __init__(self) -> None:
        self.kept: dict[tuple[Scope, Identity], Content] = {}
        self.actors: dict[tuple[Scope, Identity], str] = {}
        self.failure: LoomError | None = None
        self.refused: dict[str, LoomError] = {}
        self.crash_after: int | None = None
        self.organisations: list[str] = []

    async def set_many(self, scope: Scope, drafts: Sequence[Draft], actor: str) -> list[Outcome]:
        """See `Writer.set_many`."""
        attribution = current().attribution
        self.organisations.append("" if attribution is None else attribution.org)
        if self.failure is not None:
            raise self.failure
        return [self._set(scope, draft, actor) for draft in drafts]

    def _set(self, scope: Scope, draft: Draft, actor: str) -> Outcome:
        if self.crash_after is not None:
            if self.crash_after == 0:
                raise Killed
            self.crash_after -= 1
        if draft.content.value in self.refused:
            return self.refused[draft.content.value]
        place = scope, draft.identity
        is_new = self.kept.get(place) != draft.content
        self.kept[place], self.actors[place] = draft.content, actor
        return Written(draft.identity, 1, is_new, "" if is_new else UNCHANGED, datetime.now(UTC))


class Killed(BaseException):
    """Ends a test's process at this place; nothing that handles errors meets it."""
