"""Asks a model for the facts of a window, and asks again where its answer is not whole, not readable or empty."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loom_common.errors import LoomError
from loom_common.json_text import parse_object
from loom_common.lenient_json import JsonValue
from loom_common.model_calls.held import HOLDS
from loom_memory.app.extract.prompts import CODING, system_prompt, verify_prompt, window_prompt
from loom_memory.app.llm import Completion, LlmPort
from loom_memory.domain.conversation import Window
from loom_memory.domain.facts import Fact, Reply, read_reply
from loom_memory.domain.prompts import extraction as prompts

logger = logging.getLogger(__name__)

FEATURE: Final = "extraction"
FIRST_TOKENS: Final = 4_096
"""Source: chosen; facts are about a third as long as what they are taken from."""
MOST_TOKENS: Final = 8_192

_CALL_TIMEOUT_S: Final = 120.0
_VERIFY_TIMEOUT_S: Final = 60.0
_VERIFY_TOKENS: Final = 1_024
# An answer of this length takes the reader longer than the loop should stand still.
_INLINE_CHARS: Final = 50_000


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """What a window holds: its facts, the model that found them, and whether an answer could be read at all."""

    facts: tuple[Fact, ...]
    model: str
    readable: bool


class FactExtractor:
    """Takes facts out of windows.

    Args:
        llm: The model.
        verify_models: Models that check the facts of coding work, the first that answers; none to leave it out.
        call_timeout_s: Longest wait for one answer.
    """

    def __init__(
        self, llm: LlmPort, verify_models: Sequence[str] = (), *, call_timeout_s: float = _CALL_TIMEOUT_S
    ) -> None:
        self._llm = llm
        self._verify_models = tuple(verify_models)
        self._call_timeout_s = call_timeout_s

    async def facts(self, window: Window, capture: str) -> WindowFacts:
        """Returns the facts of a window, in at most four calls and one more to check them.

        An answer that breaks off is asked for again with twice the tokens, and then what is whole of it is taken; one
        that cannot be read is asked for once more, more strictly; and so is one without facts where much was said.

        Raises:
            LoomError: The model did not answer.
        """
        asked = _Asking(self._llm, window, capture, self._call_timeout_s)
        reply = await asked.once()
        if reply.truncated:
            reply = _fuller(reply, await asked.once(tokens=MOST_TOKENS))
        elif not reply.readable:
            reply = await asked.once(prompts.STRICTER.text)
        if not reply.facts and reply.readable and not window.is_trivial:
            reply = _fuller(reply, await asked.once(prompts.AGAIN.text))
        facts = reply.facts
        if facts and capture == CODING:
            facts = await self._verified(window, facts)
        return WindowFacts(facts, asked.model, reply.readable or bool(facts))

    async def _verified(self, window: Window, facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
        """Returns the facts that a second model lets pass; all of them where none can be asked or understood."""
        for model in self._verify_models:
            try:
                answer = await self._llm.complete(
                    prompts.VERIFY.text,
                    verify_prompt(window, facts),
                    max_tokens=_VERIFY_TOKENS,
                    json=True,
                    feature=FEATURE,
                    model=model,
                    prompt=prompts.VERIFY,
                    timeout_s=_VERIFY_TIMEOUT_S,
                )
            except HOLDS:
                raise
            except LoomError as error:
                logger.warning("facts_not_verified", extra={"model": model, "reason": error.reason.value})
                continue
            if answer.fake:
                # Its answer is an echo and says nothing about the facts.
                continue
            dropped = _dropped(answer.text, len(facts))
            if dropped is not None:
                return tuple(fact for place, fact in enumerate(facts) if place not in dropped)
        return facts


class _Asking:
    """The calls for one window."""

    def __init__(self, llm: LlmPort, window: Window, capture: str, timeout_s: float) -> None:
        self._llm = llm
        self._window = window
        self._capture = capture
        self._timeout_s = timeout_s
        self._user = window_prompt(window)
        self.model = ""

    async def once(self, *addenda: str, tokens: int = FIRST_TOKENS) -> Reply:
        answer = await self._llm.complete(
            system_prompt(self._capture, *addenda),
            self._user,
            max_tokens=tokens,
            json=True,
            feature=FEATURE,
            prompt=prompts.FACTS,
            timeout_s=self._timeout_s,
        )
        self.model = answer.model
        return await self._read(answer)

    async def _read(self, answer: Completion) -> Reply:
        stopped = answer.stop_reason == "length"
        if len(answer.text) > _INLINE_CHARS:
            return await asyncio.to_thread(read_reply, answer.text, self._window, stopped=stopped)
        return read_reply(answer.text, self._window, stopped=stopped)


def _fuller(before: Reply, after: Reply) -> Reply:
    """Returns the answer that says more; an answer that could be read is not lost for one that could not."""
    if after.readable and len(after.facts) >= len(before.facts):
        return after
    return before if before.readable else after


def _dropped(text: str, count: int) -> set[int] | None:
    """Returns the places of the facts that an answer drops; None where it cannot be understood."""
    parsed = parse_object(text)
    entries = None if parsed.value is None else parsed.value.get("dropped")
    if not isinstance(entries, list):
        return None
    numbers = [_number(entry) for entry in entries]
    return {number - 1 for number in numbers if number is not None and 1 <= number <= count}


def _number(entry: JsonValue) -> int | None:
    value = entry.get("fact") if isinstance(entry, dict) else entry
    return value if isinstance(value, int) and not isinstance(value, bool) else None
