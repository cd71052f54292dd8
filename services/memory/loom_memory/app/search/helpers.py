"""What may be added to the legs for a question that they answer badly: other wordings, by a model or by what is stored.

Every helper is bounded, in calls and in time, and fails open: where one cannot help, the search goes on without it and
tells so where it is asked to explain itself.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from loom_common.errors import LoomError
from loom_common.json_text import parse_object
from loom_common.prompts import Prompt
from loom_memory.app.llm import LlmPort
from loom_memory.domain.fencing import fenced
from loom_memory.domain.findings import HelperNote
from loom_memory.domain.prompts.search import HYDE, JUDGE, REWRITE, SYNONYMS, TRIPLES

logger = logging.getLogger(__name__)

_MAX_TOKENS: Final = 400
_MAX_WORDING: Final = 1_000
_MAX_NOTES: Final = 10
_MAX_NOTE_CHARS: Final = 500
_MAX_NAMES: Final = 8
_MAX_WORDS: Final = 6
_FEATURE: Final = "search"


@dataclass(frozen=True, slots=True)
class HelperBounds:
    """How much helpers may cost one search.

    Attributes:
        max_calls: Most calls to a model.
        timeout_s: Longest wait for one of them. Units: seconds.
    """

    max_calls: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Triples:
    """What a model read from a question: names, and relations between them as one line of words."""

    names: tuple[str, ...]
    wording: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether hits answer a question, and what to search for where they do not."""

    answered: bool
    wording: str


@dataclass(slots=True)
class Helping:
    """The helpers of one search: what they may still spend, and what became of each."""

    llm: LlmPort
    bounds: HelperBounds
    notes: list[HelperNote] = field(default_factory=list)
    calls: int = 0

    async def hyde(self, question: str) -> str:
        """Returns what an answer would look like; empty where there is none."""
        return _line(await self._ask(HYDE, question))

    async def rewrite(self, question: str) -> str:
        """Returns the question in other words; empty where there are none."""
        return _text(await self._object(REWRITE, question), "query")

    async def triples(self, question: str) -> Triples:
        """Returns what the question is about."""
        found = await self._object(TRIPLES, question)
        names = tuple(_words(found, "names", _MAX_NAMES))
        triples = found.get("triples")
        parts = [
            part
            for triple in (triples if isinstance(triples, list) else [])[:_MAX_NAMES]
            if isinstance(triple, list)
            for part in triple
            if isinstance(part, str) and part.strip()
        ]
        return Triples(names, _line(" ".join(dict.fromkeys(parts))))

    async def synonyms(self, question: str) -> tuple[bool, tuple[str, ...]]:
        """Returns whether the question counts things, and other words by which notes may tell the same."""
        found = await self._object(SYNONYMS, question)
        return found.get("counts") is True, tuple(_words(found, "words", _MAX_WORDS))

    async def judge(self, question: str, texts: Sequence[str]) -> Verdict:
        """Returns whether the best hits answer the question; they do where no model says otherwise."""
        notes = "\n".join(f"{place}. {text[:_MAX_NOTE_CHARS]}" for place, text in enumerate(texts[:_MAX_NOTES], 1))
        found = await self._object(JUDGE, question, fenced("notes", notes))
        return Verdict(found.get("answered") is not False, _text(found, "query"))

    def note(self, name: str, outcome: str) -> None:
        """Takes down what became of a helper."""
        self.notes.append(HelperNote(name, outcome))

    async def _object(self, prompt: Prompt, question: str, *more: str) -> dict[str, object]:
        answer = await self._ask(prompt, question, *more, json=True)
        if not answer:
            return {}
        parsed = parse_object(answer).value
        if parsed is None:
            self.notes[-1] = HelperNote(prompt.name, "unreadable")
            return {}
        return dict(parsed)

    async def _ask(self, prompt: Prompt, question: str, *more: str, json: bool = False) -> str:
        """Returns a model's answer, empty where there is none for whatever reason."""
        if self.calls >= self.bounds.max_calls:
            self.note(prompt.name, "skipped: no call left")
            return ""
        self.calls += 1
        user = "\n".join([fenced("question", question), *more])
        try:
            async with asyncio.timeout(self.bounds.timeout_s):
                answer = await self.llm.complete(
                    prompt.text,
                    user,
                    max_tokens=_MAX_TOKENS,
                    json=json,
                    feature=_FEATURE,
                    prompt=prompt,
                    timeout_s=self.bounds.timeout_s,
                )
        except TimeoutError:
            self.note(prompt.name, "failed: DEADLINE_EXCEEDED")
            return ""
        except LoomError as error:
            logger.info("search_helper_failed", extra={"helper": prompt.name, "reason": error.reason.value})
            self.note(prompt.name, f"failed: {error.reason.value}")
            return ""
        if answer.fake or answer.stop_reason == "refusal":
            # A fake echoes the question, which would be searched twice.
            self.note(prompt.name, "skipped: fake model" if answer.fake else "refused")
            return ""
        self.note(prompt.name, "used")
        return answer.text


def _line(text: str) -> str:
    return " ".join(text.split())[:_MAX_WORDING]


def _text(found: dict[str, object], name: str) -> str:
    value = found.get(name)
    return _line(value) if isinstance(value, str) else ""


def _words(found: dict[str, object], name: str, most: int) -> list[str]:
    value = found.get(name)
    words = [_line(word) for word in value if isinstance(word, str)] if isinstance(value, list) else []
    return [word for word in words if word][:most]
