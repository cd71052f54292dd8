"""A source of sections that shows what a test wants."""

import asyncio
from collections.abc import Mapping, Sequence

from loom_common.call import Scope
from loom_memory.context.app.ports import Wanted
from loom_memory.context.domain.entries import Entry
from loom_memory.context.domain.sections import Section


class FakeSource:
    """Shows given entries, or fails.

    Attributes:
        shown: Entries by section; change them between two packs.
        error: What it fails with; None for nothing.
        asked: What it was asked, in order.
        gate: Reads wait for it; set at first.
    """

    def __init__(self, shown: Mapping[Section, Sequence[Entry]], error: Exception | None = None) -> None:
        self.shown = dict(shown)
        self.error = error
        self.asked: list[Wanted] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._sections = tuple(shown)

    @property
    def sections(self) -> tuple[Section, ...]:
        """See `Source.sections`."""
        return self._sections

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """See `Source.read`."""
        self.asked.append(wanted)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.shown
