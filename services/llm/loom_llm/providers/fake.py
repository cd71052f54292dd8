"""The fake model: it echoes, says so, and never pretends to be a model."""

import json
from typing import Final

from loom_llm.domain.client import DEFAULT_MAX_TOKENS, LLMResult, ResponseFormat
from loom_llm.domain.selection import FAKE

_MARK: Final = "[fake-echo]"


class FakeClient:
    """Answers every prompt with its beginning. Deterministic; a token is a word."""

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
        # The mark is the first word, so that no cap cuts it off.
        words = [_MARK, *user.split()][:max_tokens]
        echo = " ".join(words)
        wants_json = response_format is not None and response_format["type"] == "json_object"
        return LLMResult(
            text=json.dumps({"fake": True, "echo": echo}, ensure_ascii=False) if wants_json else echo,
            provider=self.provider,
            model=self.model,
            input_tokens=len(system.split()) + len(user.split()),
            output_tokens=len(words),
        )
