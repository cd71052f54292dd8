"""Profiles as a search over every plane asks them."""

from collections.abc import Sequence

from loom_common.call import Scope
from loom_memory.profiles.app.match import ProfileMatch, ProfileQuery
from loom_memory.unified.app.ports import SectionMatch


class ProfileLeg:
    """Sections of every owner that the running call may read. See `Profiles` of the search over every plane."""

    def __init__(self, match: ProfileMatch) -> None:
        self._match = match

    async def match(self, scope: Scope, text: str, top_k: int, min_similarity: float) -> Sequence[SectionMatch]:
        """Returns sections that answer, best first."""
        findings = await self._match.match(scope, ProfileQuery(text, top_k, min_similarity=min_similarity))
        return [
            SectionMatch(
                scope,
                hit.section.label,
                hit.section.value,
                hit.section.user_id,
                hit.section.agent,
                hit.section.updated_at,
                hit.section.version,
                hit.similarity,
                hit.by_words,
            )
            for hit in findings.hits
        ]
