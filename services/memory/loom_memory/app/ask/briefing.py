"""Briefs on a topic: what is remembered by kind, what is not known, and a summary where a model may write one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_memory.app.ask.asking import NO_MODEL, NOT_ALLOWED, Recall
from loom_memory.app.ask.evidence import Checked
from loom_memory.app.ask.synthesis import Synthesis
from loom_memory.app.search import BELOW_FLOOR, SearchQuery
from loom_memory.domain.analyzer import analyze_query, analyze_text
from loom_memory.domain.answers import citation_of, told_at
from loom_memory.domain.memory import Filter, Hit

# What binds and what is to be done comes before what merely is.
_ORDER: Final = ("constraint", "decision", "task", "preference", "event", "fact")
_LINE_CHARS: Final = 400
# Words are looked for in the beginning of each memory, so that a brief of many long ones does not hold up the process.
_READ_CHARS: Final = 2_000
_OLD: Final = timedelta(days=90)
_MOST_UNKNOWNS: Final = 10


@dataclass(frozen=True, slots=True)
class Topic:
    """What to brief on."""

    text: str
    wanted: Filter
    top_k: int
    allow_synthesis: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """What is remembered of one kind, oldest first."""

    kind: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Brief:
    """The brief, or why there is none."""

    evidence: tuple[Hit, ...] = ()
    sections: tuple[Section, ...] = ()
    unknowns: tuple[str, ...] = ()
    summary: Checked | None = None
    abstain_code: str = ""
    model: str = ""
    degraded: str = ""


class Briefing:
    """Briefs over one namespace; under LLM-free reads with the memories and the unknowns alone.

    Args:
        recall: Finds what is remembered of the topic.
        synthesis: Has a model write.
        clock: Time.
        reads_llm_free: Whether reads are promised to reach no model.
    """

    def __init__(self, recall: Recall, synthesis: Synthesis, clock: Clock, *, reads_llm_free: bool) -> None:
        self._recall = recall
        self._synthesis = synthesis
        self._clock = clock
        self._reads_llm_free = reads_llm_free

    async def brief(self, scope: Scope, topic: Topic) -> Brief:
        """Briefs on a topic.

        Raises:
            LoomError: Nothing could be recalled, or calls to models are not made for the caller.
        """
        result = await self._recall.search(scope, SearchQuery(topic.text, topic.wanted, topic.top_k))
        good = tuple(hit for hit in result.hits if not hit.low)
        if not good:
            code = result.abstain_code or BELOW_FLOOR
            return Brief(tuple(result.hits), unknowns=(f"Nothing is remembered of: {topic.text}",), abstain_code=code)
        brief = Brief(good, sections(good), self._unknowns(topic.text, good))
        if self._reads_llm_free or not topic.allow_synthesis:
            return _with(brief, degraded=NOT_ALLOWED)
        if not await self._synthesis.is_possible():
            return _with(brief, degraded=NO_MODEL)
        written = await self._synthesis.brief(scope, topic.text, good, self._clock.now())
        unknowns = tuple(dict.fromkeys([*brief.unknowns, *written.unknowns]))[:_MOST_UNKNOWNS]
        return Brief(good, brief.sections, unknowns, written.answer, model=written.model, degraded=written.degraded)

    def _unknowns(self, topic: str, hits: Sequence[Hit]) -> tuple[str, ...]:
        """Returns what the memories visibly lack: words of the topic that none holds, decisions, news."""
        told = frozenset(term for hit in hits for term in analyze_text(_text(hit)).term_ids)
        lacking = [term.term for term in analyze_query(topic).terms if term.weight >= 1 and term.term_id not in told]
        found = [f"No memory mentions: {', '.join(lacking)}"] if lacking else []
        kinds = {hit.memory.content.kind for hit in hits}
        if not kinds & {"decision", "constraint"}:
            found.append("No decision or constraint is remembered.")
        if "task" not in kinds:
            found.append("No open task is remembered.")
        newest = max(told_at(hit.memory) for hit in hits)
        if self._clock.now() - newest > _OLD:
            found.append(f"Nothing newer than {newest.astimezone(UTC).date().isoformat()} is remembered.")
        return tuple(found)


def sections(hits: Sequence[Hit]) -> tuple[Section, ...]:
    """Returns hits by kind, the most pressing kinds first, each oldest first."""
    kinds = sorted({hit.memory.content.kind for hit in hits}, key=lambda kind: (_rank(kind), kind))
    return tuple(
        Section(
            kind,
            tuple(
                _line(hit)
                for hit in sorted(hits, key=lambda hit: (told_at(hit.memory), hit.memory.identity))
                if hit.memory.content.kind == kind
            ),
        )
        for kind in kinds
    )


def _rank(kind: str) -> int:
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _line(hit: Hit) -> str:
    content = hit.memory.content
    day = f"{content.event_time.astimezone(UTC).date().isoformat()}: " if content.event_time else ""
    text = " ".join(content.value.split())
    shown = text if len(text) <= _LINE_CHARS else f"{text[: _LINE_CHARS - 1]}…"
    return f"{day}{shown} {citation_of(hit.memory)}"


def _text(hit: Hit) -> str:
    return f"{hit.memory.content.value[:_READ_CHARS]} {hit.memory.identity.key} {hit.memory.content.speaker}"


def _with(brief: Brief, *, degraded: str) -> Brief:
    return Brief(brief.evidence, brief.sections, brief.unknowns, degraded=degraded)
