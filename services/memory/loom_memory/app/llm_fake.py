"""A language model that says what a test wants, and notes what it was asked."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loom_common.attribution import Attribution
from loom_common.call import current
from loom_common.errors import LoomError, ReadsLlmFree
from loom_common.prompts import Prompt
from loom_common.usage import Usage
from loom_memory.app.llm import DEFAULT_MAX_TOKENS, DEFAULT_TIMEOUT_S, AnswerCacheUse, Completion, ServedLlm


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt as it came."""

    system: str
    user: str
    max_tokens: int
    json: bool
    feature: str
    model: str | None
    cache: AnswerCacheUse | None
    attribution: Attribution | None


Answer = str | Completion | LoomError


class FakeLlm:
    """Answers in order of its script, then by its rule.

    Attributes:
        fake: Whether it says of itself that it is the fake of a keyless deployment.
        reads_llm_free: Whether it refuses calls that only read, as the llm service does.
        asked: Prompts, in order.
        rule: Answers a prompt that the script has no answer for.
        scores: Scores of texts for `rerank`; one that is not named has 0.
        gate: Calls wait for it; set at first.
        started: Set when a prompt has come; clear it to wait for the next.
        usage: What each prompt spends.
    """

    def __init__(self, *script: Answer, fake: bool = False) -> None:
        self.fake = fake
        self.reads_llm_free = False
        self.asked: list[Asked] = []
        self.rule: Callable[[Asked], Answer] = lambda asked: "{}"
        self.scores: dict[str, float] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.started = asyncio.Event()
        self.usage = Usage(input_tokens=100, output_tokens=10, llm_calls=1, upstream_cost_usd=0.01, model="model-1")
        self._script = deque(script)

    def script(self, *answers: Answer) -> None:
        """Adds answers to be given next, in order."""
        self._script.extend(answers)

    async def served(self) -> ServedLlm:
        """See `LlmPort.served`."""
        return ServedLlm("fake", "fake-echo-1", True) if self.fake else ServedLlm("openai", "model-1", False)

    async def complete(
        self,
        system: str,
        user: str,
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        json: bool = False,
        feature: str,
        model: str | None = None,
        prompt: Prompt | None = None,
        cache: AnswerCacheUse | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Completion:
        """See `LlmPort.complete`."""
        attribution = current().attribution
        if self.reads_llm_free and attribution is not None and attribution.read_only:
            raise ReadsLlmFree("LOOM_READS_LLM_FREE is on.", detail={"setting": "LOOM_READS_LLM_FREE"})
        asked = Asked(system, user, max_tokens, json, feature, model, cache, attribution)
        self.asked.append(asked)
        self.started.set()
        await self.gate.wait()
        answer = self._script.popleft() if self._script else self.rule(asked)
        if isinstance(answer, LoomError):
            raise answer
        current().usage.merge(self.usage)
        return Completion(answer, False, model or "model-1") if isinstance(answer, str) else answer

    async def rerank(self, query: str, texts: Sequence[str], *, endpoint: str, named: bool) -> list[float]:
        """See `LlmPort.rerank`."""
        await self.gate.wait()
        return [self.scores.get(text, 0.0) for text in texts]
