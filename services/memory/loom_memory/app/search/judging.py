"""Lets a model judge a sample of searches, in the background: how good retrieval is, without anybody waiting for it."""

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loom_common.call import Scope, current
from loom_common.clock import Clock
from loom_common.errors import LoomError
from loom_common.features import Feature
from loom_common.json_text import parse_object
from loom_common.ledger import LedgerSink
from loom_memory.app.llm import LlmPort
from loom_memory.app.passes import Passes
from loom_memory.domain.fencing import fenced
from loom_memory.domain.memory import Hit
from loom_memory.domain.prompts.search import QUALITY
from loom_memory.store.judgements import Judgement, JudgementRepository

logger = logging.getLogger(__name__)

_MAX_WAITING: Final = 100
_MAX_HITS: Final = 10
_MAX_CHARS: Final = 500
_MAX_TOKENS: Final = 300
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Sampled:
    scope: Scope
    actor: str
    op: str
    request_id: str
    query: str
    texts: tuple[str, ...]


class QualityJudge:
    """Judges sampled searches, one after the other; what comes faster than it judges is left out.

    Args:
        llm: The model.
        judgements: Where what it says is kept, as numbers.
        ledger: Where what it cost is told.
        clock: Time.
        rate: Share of searches that are judged, 0 to 1; 0 also where reads go without models.
        chance: Draws the sample.
    """

    def __init__(
        self,
        llm: LlmPort,
        judgements: JudgementRepository,
        ledger: LedgerSink,
        clock: Clock,
        *,
        rate: float,
        chance: random.Random | None = None,
    ) -> None:
        self._llm = llm
        self._judgements = judgements
        self._passes = Passes(Feature.RETRIEVAL_JUDGE, clock, ledger)
        self._clock = clock
        self._rate = rate
        self._chance = chance or random.Random()  # noqa: S311  (draws a sample; no secret)
        self._waiting: asyncio.Queue[_Sampled] = asyncio.Queue(_MAX_WAITING)

    def consider(self, scope: Scope, query: str, hits: Sequence[Hit], actor: str) -> None:
        """Takes a search of the running call, if it is drawn. Neither waits nor fails."""
        if not self._rate or not hits or self._chance.random() >= self._rate:
            return
        call = current()
        texts = tuple(hit.memory.content.value[:_MAX_CHARS] for hit in hits[:_MAX_HITS])
        sampled = _Sampled(scope, actor, call.op, call.request_id, query, texts)
        if not self._waiting.full():
            self._waiting.put_nowait(sampled)

    async def run(self) -> None:
        """Judges what is taken, until it is cancelled."""
        while True:
            await self.judge_one(await self._waiting.get())

    async def drain(self) -> None:
        """Judges what waits."""
        while not self._waiting.empty():
            await self.judge_one(self._waiting.get_nowait())

    async def judge_one(self, sampled: _Sampled) -> None:
        """Judges one search; one that cannot be judged is left out."""
        try:
            async with self._passes.passing() as work:
                with work.acting(sampled.scope, sampled.actor):
                    judgement = await self._judge(sampled)
                if judgement is not None:
                    await self._judgements.insert(judgement)
        except LoomError as error:
            logger.info("retrieval_not_judged", extra={"reason": error.reason.value})

    async def _judge(self, sampled: _Sampled) -> Judgement | None:
        notes = "\n".join(f"{place}. {text}" for place, text in enumerate(sampled.texts, 1))
        answer = await self._llm.complete(
            QUALITY.text,
            f"{fenced('question', sampled.query)}\n{fenced('notes', notes)}",
            max_tokens=_MAX_TOKENS,
            json=True,
            feature=Feature.RETRIEVAL_JUDGE.value,
            prompt=QUALITY,
            timeout_s=_TIMEOUT_S,
        )
        found = parse_object(answer.text).value
        if answer.fake or found is None or not isinstance(listed := found.get("relevant"), list):
            return None
        places = {place for place in listed if isinstance(place, int) and 1 <= place <= len(sampled.texts)}
        return Judgement(
            scope=sampled.scope,
            judged_at=self._clock.now(),
            request_id=sampled.request_id,
            op=sampled.op,
            model=answer.model,
            hits=len(sampled.texts),
            relevant=len(places),
            first_relevant=min(places, default=0),
            answered=found.get("answered") is True,
        )
