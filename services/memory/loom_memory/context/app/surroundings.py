"""The sections of a pack that tell of the namespace itself: its health, its guide, and what should be put right."""

from collections.abc import Mapping, Sequence

from loom_common.call import Scope
from loom_memory.context.app.ports import Wanted
from loom_memory.context.domain.entries import Entry, on_one_line
from loom_memory.context.domain.sections import Section
from loom_memory.guides.app.guides import Guides
from loom_memory.guides.app.health import Health
from loom_memory.guides.app.mentor import Mentor
from loom_memory.guides.domain.findings import Finding
from loom_memory.guides.domain.health import complaints


class NamespaceGuideSection:
    """The guide; nothing where there is none."""

    sections = (Section.NAMESPACE_GUIDE,)

    def __init__(self, guides: Guides) -> None:
        self._guides = guides

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """See `Source.read`."""
        guide = await self._guides.get(scope)
        return {} if guide is None else {Section.NAMESPACE_GUIDE: [Entry(f"guide@v{guide.revision}", guide.text)]}


class HealthSection:
    """What an agent should know before it relies on the namespace; nothing where all is well.

    Numbers of the whole namespace are told to nobody who reads less than the whole.
    """

    sections = (Section.NAMESPACE_HEALTH,)

    def __init__(self, health: Health) -> None:
        self._health = health

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """See `Source.read`."""
        snapshot = None if wanted.is_narrow else await self._health.snapshot(scope)
        if snapshot is None:
            return {}
        return {Section.NAMESPACE_HEALTH: [Entry("health", line) for line in complaints(snapshot.health)]}


class MentorSection:
    """What should be put right, the most pressing first; told as the health is."""

    sections = (Section.MENTOR,)

    def __init__(self, mentor: Mentor) -> None:
        self._mentor = mentor

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """See `Source.read`."""
        found = () if wanted.is_narrow else await self._mentor.findings(scope)
        return {Section.MENTOR: [Entry(finding.kind.value, _line(finding)) for finding in found]}


def _line(finding: Finding) -> str:
    keys = ", ".join(dict.fromkeys(on_one_line(subject.key) for subject, _ in finding.subjects))
    named = f" Such as: {keys}." if keys else ""
    return f"{finding.message} {finding.advice}{named}"
