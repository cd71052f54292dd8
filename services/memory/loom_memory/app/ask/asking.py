"""Answers a question: recall, then what the memories settle themselves, then a model, then their own words."""

from dataclasses import dataclass
from typing import Final, Protocol

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.errors import ReadsLlmFree
from loom_memory.app.ask.synthesis import Synthesis, Written
from loom_memory.app.search import BELOW_FLOOR, SearchQuery
from loom_memory.domain.answers import Answer, Route, extract, read_off, route_of
from loom_memory.domain.memory import Filter, Hit, SearchResult

UNSUPPORTED: Final = "unsupported"
"""Code of a question that nothing recalled answers."""

NO_MODEL: Final = "no_model"
NOT_ALLOWED: Final = "not_allowed"

_SETTING: Final = "LOOM_READS_LLM_FREE"


class Recall(Protocol):
    """Finds memories."""

    async def search(self, scope: Scope, query: SearchQuery) -> SearchResult:
        """Returns what answers a query, best first."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        allow_synthesis: Whether a model may write the answer.
        llm_cache: Whether an answer may be kept; None for what the namespace and the deployment say.
        model: Model that the caller names; empty for one that fits.
    """

    text: str
    wanted: Filter
    top_k: int
    allow_synthesis: bool = True
    llm_cache: bool | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer, or why there is none."""

    evidence: tuple[Hit, ...] = ()
    text: str = ""
    cited: tuple[Hit, ...] = ()
    route: str = ""
    extractive: bool = False
    abstain_code: str = ""
    model: str = ""
    from_cache: bool = False
    saved_usd: float = 0.0
    degraded: str = ""
    unverified: int = 0


class Asking:
    """Answers questions over one namespace.

    Args:
        recall: Finds what may answer.
        synthesis: Has a model write.
        clock: Time.
        reads_llm_free: Whether reads are promised to reach no model.
    """

    def __init__(self, recall: Recall, synthesis: Synthesis, clock: Clock, *, reads_llm_free: bool) -> None:
        self._recall = recall
        self._synthesis = synthesis
        self._clock = clock
        self._reads_llm_free = reads_llm_free

    async def ask(self, scope: Scope, question: Question) -> Answered:
        """Answers a question.

        Raises:
            ReadsLlmFree: The deployment promises reads without a model, and the question does not go without.
            LoomError: Nothing could be recalled, or calls to models are not made for the caller.
        """
        if self._reads_llm_free and question.allow_synthesis:
            raise ReadsLlmFree(
                f"{_SETTING} is on: operations that only read call no model. Ask with allow_synthesis false for the "
                "memories themselves.",
                detail={"setting": _SETTING},
            )
        result = await self._recall.search(scope, SearchQuery(question.text, question.wanted, question.top_k))
        good = tuple(hit for hit in result.hits if not hit.low)
        if not good:
            return Answered(tuple(result.hits), abstain_code=result.abstain_code or BELOW_FLOOR)
        may_write = question.allow_synthesis and await self._synthesis.is_possible()
        is_all = all(kept.low for kept in result.kept)
        if settled := await self._settled(question, good, may_write=may_write, all_recalled=is_all):
            return _answered(good, settled)
        if may_write:
            written = await self._synthesis.answer(
                scope, question.text, good, self._clock.now(), model=question.model, cache=question.llm_cache
            )
            if not written.degraded:
                return _synthesised(good, written)
            degraded = written.degraded
        else:
            degraded = NO_MODEL if question.allow_synthesis else NOT_ALLOWED
        own_words = extract(question.text, good)
        if own_words is None:
            return Answered(good, abstain_code=UNSUPPORTED, degraded=degraded)
        return _answered(good, own_words, degraded)

    async def _settled(
        self, question: Question, hits: tuple[Hit, ...], *, may_write: bool, all_recalled: bool
    ) -> Answer | None:
        """Returns the answer that the memories settle themselves."""
        verbs: list[str] = []
        if may_write and route_of(question.text) is Route.COUNT and _is_about_times(question.text):
            verbs = await self._synthesis.verbs(question.text)
        return read_off(question.text, hits, verbs=verbs, all_recalled=all_recalled)


def _is_about_times(text: str) -> bool:
    folded = text.casefold()
    return "how many times" in folded or "how often" in folded


def _answered(evidence: tuple[Hit, ...], answer: Answer, degraded: str = "") -> Answered:
    # What is counted or dated stands in the memories' own words too.
    return Answered(evidence, answer.text, answer.cited, answer.route.value, extractive=True, degraded=degraded)


def _synthesised(evidence: tuple[Hit, ...], written: Written) -> Answered:
    answer = written.answer
    if answer is None:
        return Answered(evidence, abstain_code=UNSUPPORTED, model=written.model, from_cache=written.from_cache)
    return Answered(
        evidence,
        answer.text,
        answer.cited,
        Route.SYNTHESIS.value,
        model=written.model,
        from_cache=written.from_cache,
        saved_usd=written.saved_usd,
        unverified=answer.unverified,
    )
