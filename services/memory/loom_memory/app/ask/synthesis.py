"""Has a model write an answer from recalled memories, and believes it only as far as its citations go."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.auth.directory import Directory
from loom_common.call import Scope, current
from loom_common.errors import BudgetExhausted, LoomError, ReadsLlmFree
from loom_common.json_text import Finding, parse_object
from loom_common.model_calls.held import HOLDS
from loom_common.prompts import Prompt
from loom_memory.app.ask.evidence import Checked, checked, evidence_prompt
from loom_memory.app.llm import AnswerCacheUse, LlmPort
from loom_memory.domain.fencing import fenced
from loom_memory.domain.memory import Hit
from loom_memory.domain.prompts import ask as prompts

logger = logging.getLogger(__name__)

FEATURE: Final = "ask"

_ANSWER_TOKENS: Final = 1_024
_VERB_TOKENS: Final = 128
_VERB_TIMEOUT_S: Final = 5.0
_MOST_VERBS: Final = 8
_MOST_UNKNOWNS: Final = 10
# What is asked of few memories in few words needs no large model. Source: chosen.
_CHEAP_HITS: Final = 3
_MID_HITS: Final = 10
_SHORT_QUESTION_CHARS: Final = 80
_HARD_WORDS: Final = frozenset(("why", "how", "compare", "summarise", "summarize", "explain", "difference", "and"))
_CONSOLIDATED: Final = "consolidated"
_SOURCE_TAG: Final = "src:"


@dataclass(frozen=True, slots=True)
class AskModels:
    """Models of the stages; empty for the served one.

    Attributes:
        synthesis: For open questions.
        cheap: For short questions over few memories.
        mid: For those between.
    """

    synthesis: str = ""
    cheap: str = ""
    mid: str = ""

    def fitting(self, question: str, hits: Sequence[Hit]) -> str:
        """Returns the model that a question needs; a stage without one of its own takes the next larger."""
        words = set(question.casefold().replace("?", " ").split())
        if words & _HARD_WORDS or len(hits) > _MID_HITS:
            return self.synthesis
        if len(hits) <= _CHEAP_HITS and len(question) <= _SHORT_QUESTION_CHARS:
            return self.cheap or self.mid or self.synthesis
        return self.mid or self.synthesis


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Where answers may be kept: everywhere, or in the namespaces that are named."""

    default: bool = True
    namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Written:
    """What a model wrote.

    Attributes:
        answer: The answer; None where the memories support none.
        degraded: Why there is none although the memories might support one: the reason of an error.
    """

    answer: Checked | None = None
    model: str = ""
    from_cache: bool = False
    saved_usd: float = 0.0
    degraded: str = ""
    unknowns: tuple[str, ...] = ()


class Synthesis:
    """Writes answers.

    Args:
        llm: The models.
        directory: Knows what a namespace says of keeping answers.
        models: Models of the stages.
        cache: What the deployment says of it.
        timeout_s: Longest wait for an answer.
    """

    def __init__(
        self, llm: LlmPort, directory: Directory, models: AskModels, cache: CachePolicy, *, timeout_s: float
    ) -> None:
        self._llm = llm
        self._directory = directory
        self._models = models
        self._cache = cache
        self._timeout_s = timeout_s

    async def is_possible(self) -> bool:
        """Says whether a model is served whose words are an answer."""
        try:
            return not (await self._llm.served()).fake
        except LoomError as error:
            logger.warning("served_model_unknown", extra={"reason": error.reason.value})
            return False

    async def answer(
        self,
        scope: Scope,
        question: str,
        hits: Sequence[Hit],
        now: datetime,
        *,
        model: str = "",
        cache: bool | None = None,
    ) -> Written:
        """Returns a model's answer to a question, its citations checked.

        Raises:
            ReadsLlmFree: The deployment keeps models out of reads.
            LoomError: Calls to models are not made for the caller, or its namespace has spent its day.
        """
        chosen = model or self._models.fitting(question, hits)
        return await self._write(prompts.SYNTHESIS, "question", scope, question, hits, now, model=chosen, cache=cache)

    async def brief(self, scope: Scope, topic: str, hits: Sequence[Hit], now: datetime) -> Written:
        """Returns a model's summary of a topic and what it misses; otherwise as `answer`."""
        return await self._write(prompts.BRIEF, "topic", scope, topic, hits, now, model=self._models.synthesis)

    async def verbs(self, question: str) -> list[str]:
        """Returns words that mean the same as the question's verb; none where the model does not say in time."""
        try:
            answer = await self._llm.complete(
                prompts.VERBS.text,
                fenced("question", question),
                max_tokens=_VERB_TOKENS,
                json=True,
                feature=FEATURE,
                model=self._models.cheap or None,
                prompt=prompts.VERBS,
                timeout_s=_VERB_TIMEOUT_S,
            )
        except LoomError as error:
            logger.info("verbs_unknown", extra={"reason": error.reason.value})
            return []
        parsed = parse_object(answer.text).value or {}
        given = parsed.get("verbs")
        return [verb for verb in given if isinstance(verb, str)][:_MOST_VERBS] if isinstance(given, list) else []

    async def _write(
        self,
        prompt: Prompt,
        label: str,
        scope: Scope,
        asked: str,
        hits: Sequence[Hit],
        now: datetime,
        *,
        model: str,
        cache: bool | None = None,
    ) -> Written:
        before_usd = current().usage.llm_cache_saved_usd
        # The day alone: with the hour no answer would ever be found in the cache again.
        user = f"Today is {now.date().isoformat()}.\n{fenced(label, asked)}\n{evidence_prompt(hits)}"
        try:
            answer = await self._llm.complete(
                prompt.text,
                user,
                max_tokens=_ANSWER_TOKENS,
                json=True,
                feature=FEATURE,
                model=model or None,
                prompt=prompt,
                cache=await self._cache_use(scope, hits, cache),
                timeout_s=self._timeout_s,
            )
        except (*HOLDS, BudgetExhausted, ReadsLlmFree):
            raise
        except LoomError as error:
            logger.warning("answer_not_written", extra={"reason": error.reason.value})
            return Written(degraded=error.reason.value)
        if answer.fake:
            return Written(degraded="no_model")
        return _written(
            answer.text, hits, answer.model, answer.from_cache, current().usage.llm_cache_saved_usd - before_usd
        )

    async def _cache_use(self, scope: Scope, hits: Sequence[Hit], asked: bool | None) -> AnswerCacheUse:
        try:
            info = await self._directory.namespace_info(scope.org, scope.namespace)
        except LoomError:
            info = None
        own = None if info is None else info.llm_cache
        deployed = self._cache.default or scope.namespace in self._cache.namespaces
        enabled = asked if asked is not None else own if own is not None else deployed
        tags = {tag for hit in hits for tag in hit.memory.content.tags if _CONSOLIDATED in hit.memory.content.tags}
        kept = sorted(tag for tag in tags if tag == _CONSOLIDATED or tag.startswith(_SOURCE_TAG))
        return AnswerCacheUse(
            enabled=enabled,
            window_keys=[hit.memory.identity.key for hit in hits],
            tags=kept,
            traffic_class="" if info is None else info.traffic_class,
        )


def _written(text: str, hits: Sequence[Hit], model: str, from_cache: bool, saved_usd: float) -> Written:
    parsed = parse_object(text)
    value = parsed.value or {}
    said, supported = value.get("answer"), value.get("supported", True)
    if parsed.finding is Finding.NONE or not isinstance(said, str):
        return Written(model=model, degraded="unreadable")
    given = value.get("unknowns")
    asked = given if isinstance(given, list) else []
    unknowns = tuple(one.strip() for one in asked if isinstance(one, str) and one.strip())
    answer = checked(said, hits)
    # An answer without one checked citation rests on nothing that was remembered.
    is_supported = supported is not False and answer.text and answer.cited
    return Written(
        answer if is_supported else None, model, from_cache, max(saved_usd, 0.0), unknowns=unknowns[:_MOST_UNKNOWNS]
    )
