"""The sections of a pack that tell what its session has in mind, and which runs there were."""

from collections.abc import Mapping, Sequence

from loom_common.call import Scope
from loom_memory.context.app.ports import Wanted
from loom_memory.context.domain.entries import Entry, on_one_line
from loom_memory.context.domain.sections import Section
from loom_memory.sessions.app.runs import Runs
from loom_memory.sessions.app.working import WorkingMemory


class WorkingMemorySource:
    """The items of the session that the pack is for, as `label: value`; nothing without a session."""

    sections = (Section.WORKING_MEMORY,)

    def __init__(self, working: WorkingMemory) -> None:
        self._working = working

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """See `Source.read`."""
        if not wanted.session_id:
            return {}
        items = await self._working.read(scope, wanted.user_id, wanted.session_id)
        return {
            Section.WORKING_MEMORY: [
                Entry(item.label, f"{on_one_line(item.label)}: {on_one_line(item.value)}") for item in items
            ]
        }


class RunSource:
    """The newest runs, as `[date] agent run (status): summary`; of a narrow token's own user or session alone."""

    sections = (Section.RUNS,)

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """See `Source.read`."""
        found = await self._runs.manifest(scope, wanted.runs_limit)
        return {
            Section.RUNS: [
                Entry(
                    run.run_id,
                    f"[{run.started_at:%Y-%m-%d}] {on_one_line(f'{run.agent} {run.run_id}')} ({run.status.value}): "
                    f"{on_one_line(run.summary)}".rstrip(": "),
                )
                for run in found
            ]
        }
