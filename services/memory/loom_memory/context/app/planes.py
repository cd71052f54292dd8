"""The sections of a pack that tell of whom it is for, and of how things are done."""

from collections.abc import Mapping, Sequence

from loom_common.call import Scope
from loom_memory.context.app.ports import Wanted
from loom_memory.context.domain.entries import Entry, on_one_line
from loom_memory.context.domain.sections import Section
from loom_memory.procedures.app.match import ProcedureMatch
from loom_memory.profiles.app.sections import ProfileSections

_MOST_PROCEDURES = 8


class ProfileSource:
    """The profile: the namespace's own sections, the user's and the agent's."""

    sections = (Section.PROFILE,)

    def __init__(self, profiles: ProfileSections) -> None:
        self._profiles = profiles

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """See `Source.read`."""
        found = await self._profiles.stable(scope, wanted.user_id, wanted.agent)
        if wanted.is_narrow:
            found = tuple(one for one in found if wanted.user_id and one.user_id == wanted.user_id)
        return {
            Section.PROFILE: [
                Entry(one.id, f"{on_one_line(one.label)}: {on_one_line(one.value)}", is_whole=True) for one in found
            ]
        }


class ProcedureSource:
    """Procedures and learnings for the situation; nothing where there is none."""

    sections = (Section.PROCEDURES,)

    def __init__(self, match: ProcedureMatch) -> None:
        self._match = match

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """See `Source.read`."""
        if not wanted.situation:
            return {}
        hits = await self._match.match(scope, wanted.situation, _MOST_PROCEDURES)
        if wanted.is_narrow:
            hits = tuple(one for one in hits if wanted.user_id and one.procedure.user_id == wanted.user_id)
        return {
            Section.PROCEDURES: [
                Entry(
                    hit.procedure.id,
                    f"({hit.procedure.kind.value}) {on_one_line(hit.procedure.situation)}: "
                    f"{on_one_line(hit.procedure.body)}",
                    hit.similarity or 0.0,
                )
                for hit in hits
            ]
        }
