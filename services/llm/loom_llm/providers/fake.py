"""The fake model: it quotes the prompt, says so, and never pretends to be a model."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Final

from loom_llm.domain.messages import DEFAULT_MAX_TOKENS, ChatRequest, Delta, LLMResult, ResponseFormat
from loom_llm.domain.selection import FAKE
from loom_llm.providers.fake_answers import prose, shaped

# Source: chosen. Shorter prompts take a millisecond; a long one may be written so that reading it takes a second.
_INLINE_CHARS: Final = 4096


class FakeClient:
    """Answers every prompt with quotes of it; see `fake_answers`. Deterministic; a token is a word."""

    provider = FAKE

    def __init__(self, model: str) -> None:
        self.model = model

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        """See `LLMClient.complete`."""
        wants_json = response_format is not None and response_format["type"] == "json_object"
        said = _json if wants_json else _prose
        if len(system) + len(user) <= _INLINE_CHARS:
            text = said(system, user, max_tokens)
        else:
            text = await asyncio.to_thread(said, system, user, max_tokens)
        return LLMResult(
            text=text,
            provider=self.provider,
            model=self.model,
            input_tokens=len(system.split()) + len(user.split()),
            output_tokens=min(max_tokens, len(text.split())),
        )

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """See `LLMClient.chat`: echoes the last turn word by word, and asks for no tool."""
        last = request.messages[-1].text
        result = await self.complete(request.system, last, request.max_tokens, request.response_format)
        for at, word in enumerate(result.text.split(" ")):
            yield Delta(f" {word}" if at else word)
        yield Delta(result=result)


def _json(system: str, user: str, max_tokens: int) -> str:
    return json.dumps(shaped(system, user, max_tokens), ensure_ascii=False)


def _prose(system: str, user: str, max_tokens: int) -> str:
    return prose(user, max_tokens)
