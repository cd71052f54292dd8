"""What a pack reads its sections by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from loom_common.call import Scope
from loom_memory.context.domain.entries import Entry
from loom_memory.context.domain.sections import Mode, Section


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pack is about, as its sections are read.

    Attributes:
        query: What the task is about; empty for nothing in particular.
        situation: What procedures are matched by.
        mode: What the agent is about to do.
        sections: Sections that are packed.
        budget: Tokens of the whole, of which no section can take more.
        user_id: User that the pack is for; empty for none.
        session_id: Session that it is for; empty for none.
        agent: Agent that it is for; empty for none.
        tags: Keeps memories that carry any of these.
        includes_chunks: Whether pieces of transcripts count among the memories.
        runs_limit: Most runs.
        is_narrow: Whether less is read than the namespace holds: then nothing is said of the namespace as a whole.
    """

    query: str
    situation: str
    mode: Mode
    sections: tuple[Section, ...]
    budget: int
    user_id: str = ""
    session_id: str = ""
    agent: str = ""
    tags: tuple[str, ...] = ()
    includes_chunks: bool = False
    runs_limit: int = 12
    is_narrow: bool = False

    def includes(self, section: Section) -> bool:
        """Says whether a section is packed."""
        return section in self.sections


class Source(Protocol):
    """Reads what one or several sections show. What it finds is what the running call's token may read."""

    @property
    def sections(self) -> tuple[Section, ...]:
        """Sections that it reads."""
        ...

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """Returns the entries of each section that is wanted, the most important first.

        Of a section that no question changes, the same entries for every question.

        Raises:
            LoomError: They cannot be read.
        """
        ...
