"""Packs the context of a task."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from loom_common.auth.claims import ReadScope
from loom_common.call import Scope, current
from loom_common.errors import LoomError, Reason
from loom_memory.context.app.narrowing import reach_of, reading_as
from loom_memory.context.app.ports import Source, Wanted
from loom_memory.context.domain.entries import Entry, Tokens
from loom_memory.context.domain.packing import Packed, Packing
from loom_memory.context.domain.sections import (
    Mode,
    Section,
    stable_allotments,
    volatile_allotments,
    wanted_sections,
)
from loom_memory.knowledge.app.agents import agent_of
from loom_memory.unified.app.legs import within_call
from loom_memory.unified.app.once import embeddings_once

logger = logging.getLogger(__name__)

# Source: chosen; above what an embedding may take with its retry, so that what is slow is told by its own reason.
_SECTION_TIMEOUT_S: Final = 6.0
# What is left of the caller's deadline then. Source: chosen; counting the tokens of a whole pack takes half of it.
_PACKING_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class PackRequest:
    """What is asked for; None is whatever the token says."""

    query: str = ""
    situation: str = ""
    budget: int = 2000
    mode: Mode = Mode.TASK
    only: tuple[Section, ...] = ()
    included: tuple[Section, ...] = ()
    includes_chunks: bool = False
    has_decisions: bool = True
    runs_limit: int = 12
    read_scope: ReadScope | None = None
    user_id: str | None = None
    session_id: str | None = None
    agent: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextPack:
    """A pack, the reason of each section that could not be read, and whose rows were."""

    packed: Packed
    failed: Mapping[Section, str]
    read_scope: ReadScope


class ContextPacker:
    """Answers `context.pack`.

    Args:
        sources: What reads each section.
        tokens: Counts tokens.
    """

    def __init__(self, sources: Sequence[Source], tokens: Tokens) -> None:
        self._sources = sources
        self._tokens = tokens

    async def pack(self, scope: Scope, request: PackRequest) -> ContextPack:
        """Returns the pack; a section that cannot be read is empty in it.

        Raises:
            InvalidArgument: A user's or a session's rows are asked for, and nobody says whose.
            AuthInsufficient: The token reads another user's or session's rows than those that are asked for.
        """
        claims = current().claims
        reach = reach_of(claims, request.read_scope, request.user_id, request.session_id)
        sections = wanted_sections(request.only, request.included, decisions=request.has_decisions)
        wanted = Wanted(
            query=request.query.strip(),
            situation=request.situation.strip() or request.query.strip(),
            mode=request.mode,
            sections=sections,
            budget=request.budget,
            user_id=reach.user_id,
            session_id=reach.session_id,
            agent=agent_of(claims) if request.agent is None else request.agent,
            tags=request.tags,
            includes_chunks=request.includes_chunks,
            runs_limit=request.runs_limit,
            is_narrow=reach.is_narrow,
        )
        async with embeddings_once():
            with reading_as(reach):
                entries, failed = await self._read(scope, wanted)
        # The vocabulary may have to be loaded first; the loop does not wait for it.
        packed = await asyncio.to_thread(self._packed, request, sections, entries)
        return ContextPack(packed, failed, reach.read_scope)

    def _packed(
        self, request: PackRequest, sections: Sequence[Section], entries: Mapping[Section, Sequence[Entry]]
    ) -> Packed:
        packing = Packing(self._tokens, request.budget)
        packing.fill_stable(entries, stable_allotments(sections, request.only, request.mode, request.budget))
        packing.fill_volatile(entries, volatile_allotments(sections, request.mode, packing.left))
        return packing.packed()

    async def _read(self, scope: Scope, wanted: Wanted) -> tuple[dict[Section, Sequence[Entry]], dict[Section, str]]:
        sources = [source for source in self._sources if any(wanted.includes(section) for section in source.sections)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._of(source, scope, wanted)) for source in sources]
        entries: dict[Section, Sequence[Entry]] = {}
        failed: dict[Section, str] = {}
        for source, task in zip(sources, tasks, strict=True):
            found = task.result()
            for section in source.sections:
                if not wanted.includes(section):
                    continue
                if isinstance(found, str):
                    failed[section] = found
                else:
                    entries[section] = found.get(section, ())
        return entries, failed

    async def _of(self, source: Source, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]] | str:
        """Returns what a source reads, or the reason why it does not."""
        try:
            async with asyncio.timeout(within_call(_SECTION_TIMEOUT_S, _PACKING_S)):
                return await source.read(scope, wanted)
        except TimeoutError:
            reason = Reason.DEADLINE_EXCEEDED
        except LoomError as error:
            reason = error.reason
            if reason is Reason.INTERNAL:
                logger.exception("context_section_failed", extra={"sections": _names(source)})
        except Exception:
            logger.exception("context_section_failed", extra={"sections": _names(source)})
            return Reason.INTERNAL.value
        logger.info("context_section_empty", extra={"sections": _names(source), "reason": reason.value})
        return reason.value


def _names(source: Source) -> str:
    return ",".join(section.value for section in source.sections)
