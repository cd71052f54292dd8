"""Which other wordings of a question are searched too, and when."""

import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from loom_common.errors import LoomError
from loom_memory.app.llm import LlmPort
from loom_memory.app.search.helpers import HelperBounds, Helping
from loom_memory.app.search.legwork import Legwork, Looked
from loom_memory.app.search.placing import Placed, merged
from loom_memory.app.search.run import SearchRun
from loom_memory.domain import scoring
from loom_memory.domain.analyzer import STOP_WORDS
from loom_memory.domain.findings import HelperNote
from loom_memory.domain.intents import Intent
from loom_memory.domain.respelling import respelled

logger = logging.getLogger(__name__)

_NEAREST: Final = 20
"""Hits whose words a misspelled one is looked for in. Source: chosen."""

_EXPANDED: Final = 3
"""Best hits that a question for many is expanded by. Source: chosen; more blur what they have in common."""

_EXCERPT: Final = 200


@dataclass(frozen=True, slots=True)
class Worded:
    """What all wordings found together, the wordings beside the question's own, and what became of each helper."""

    placed: list[Placed]
    wordings: tuple[str, ...] = ()
    notes: tuple[HelperNote, ...] = ()


class Wordings:
    """Adds wordings to a search whose request lets them be added.

    Args:
        legwork: Looks for a wording.
        llm: The model.
        bounds: What models may cost one search.
        llm_free: Whether the deployment promises reads without a model: then nothing is added at all, not even what
            only an embedder makes, so that a plain search embeds its question and nothing else.
    """

    def __init__(self, legwork: Legwork, llm: LlmPort, bounds: HelperBounds, *, llm_free: bool) -> None:
        self._legwork = legwork
        self._llm = llm
        self._bounds = bounds
        self._llm_free = llm_free

    async def added(self, run: SearchRun, own: Looked) -> Worded:
        """Returns what the question and its other wordings find. Never fails but for cancellation."""
        wanted = run.query.plan.helpers
        if run.query.hyde is not None:
            wanted = replace(wanted, hyde=run.query.hyde)
        if self._llm_free or run.query.is_fast or run.thresholds is None:
            return Worded(own.placed, notes=self._withheld(run))
        search = _Adding(run, self._legwork, own, Helping(self._llm, self._bounds))
        best, gates = own.best_cosine, run.thresholds
        if wanted.spelling and best < gates.hyde_fallback:
            await search.look_for("spelling", [self._spelled(run, own)])
        if wanted.triples:
            triples = await search.helping.triples(run.query.text)
            await search.look_for("triples", [triples.wording], names=triples.names)
        if wanted.rewrite and best < gates.query_rewrite:
            await search.look_for("rewrite", [await search.helping.rewrite(run.query.text)])
        if wanted.hyde and (run.query.hyde or best < gates.hyde_fallback):
            await search.look_for("hyde", [await search.helping.hyde(run.query.text)])
        if wanted.synonyms and run.intent in (Intent.COUNT, Intent.LIST):
            counts, words = await search.helping.synonyms(run.query.text)
            if counts or run.intent is Intent.LIST:
                await search.look_for("synonyms", [" ".join([run.cues.text, *words])] if words else [])
        if wanted.expansion and run.intent in (Intent.COUNT, Intent.LIST):
            await search.look_for("expansion", [_expanded(run, own)])
        if wanted.judge and search.placed:
            verdict = await search.helping.judge(run.query.text, [hit.sketch.text for hit in search.placed])
            if not verdict.answered:
                await search.look_for("judge", [verdict.wording])
        return Worded(search.placed, tuple(search.wordings), tuple(search.helping.notes))

    def _withheld(self, run: SearchRun) -> tuple[HelperNote, ...]:
        if run.query.hyde:
            return (HelperNote("hyde", "skipped: reads without models" if self._llm_free else "skipped: fast"),)
        return ()

    def _spelled(self, run: SearchRun, own: Looked) -> str:
        texts = [hit.sketch.text for hit in own.placed[:_NEAREST]]
        return respelled(run.cues.text, texts, STOP_WORDS)


class _Adding:
    """One search to which wordings are added."""

    def __init__(self, run: SearchRun, legwork: Legwork, own: Looked, helping: Helping) -> None:
        self._run = run
        self._legwork = legwork
        self.helping = helping
        self.placed = own.placed
        self.wordings: list[str] = []

    async def look_for(self, name: str, wordings: Sequence[str], names: Sequence[str] = ()) -> None:
        """Searches wordings that were not searched yet, and merges what they find."""
        known = {self._run.cues.text.casefold(), self._run.query.text.casefold()}
        known |= {wording.casefold() for wording in self.wordings}
        for wording in wordings:
            if not names and (not wording or wording.casefold() in known):
                continue
            text = wording or self._run.cues.text
            looked = await self._failing_open(name, self._look(text, names))
            if looked is not None:
                self.wordings.append(text)
                self.placed = merged(self.placed, [looked.placed])

    async def _look(self, text: str, names: Sequence[str]) -> Looked:
        run = replace(self._run, cues=replace(self._run.cues, text=text))
        return await self._legwork.look(run, names)

    async def _failing_open(self, name: str, look: Awaitable[Looked]) -> Looked | None:
        try:
            return await look
        except LoomError as error:
            logger.info("search_wording_failed", extra={"helper": name, "reason": error.reason.value})
            self.helping.note(name, f"failed: {error.reason.value}")
            return None


def _expanded(run: SearchRun, own: Looked) -> str:
    """Returns the question with what its best hits say, so that others of their kind are near; empty without any."""
    best = [hit.sketch.text[:_EXCERPT] for hit in own.placed if hit.score >= scoring.MATCH][:_EXPANDED]
    return " ".join([run.cues.text, *best]) if best else ""
