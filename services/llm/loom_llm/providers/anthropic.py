"""Anthropic through the official SDK."""

from typing import Final

import anthropic
from anthropic.types import Message, TextBlock, TextBlockParam

from loom_llm.domain.client import DEFAULT_MAX_TOKENS, LLMResult, ResponseFormat
from loom_llm.domain.failures import FailureKind, ProviderError
from loom_llm.domain.json_text import without_fences
from loom_llm.domain.selection import ANTHROPIC
from loom_llm.providers.answers import checked, retry_after_s

BASE_URL: Final = "https://api.anthropic.com"
CONNECT_TIMEOUT_S: Final = 5.0

JSON_DIRECTIVE: Final = (
    "Answer with exactly one JSON object and nothing else: no prose before or after it and no code fence."
)
"""Stands at the end of the instructions where JSON is wanted: the API has no mode for it."""


class AnthropicClient:
    """Completes prompts through `messages`.

    Args:
        model: Name of the model.
        api_key: Its key.
        base_url: Root of the API. Given always: the SDK would else take it from the environment.
        timeout_s: Longest silence of the provider.
    """

    provider = ANTHROPIC

    def __init__(self, model: str, api_key: str, *, base_url: str = BASE_URL, timeout_s: float) -> None:
        self.model = model
        self._sdk = anthropic.AsyncAnthropic(
            api_key=api_key,
            base_url=base_url,
            max_retries=0,
            timeout=anthropic.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
        )

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        """See `LLMClient.complete`."""
        wants_json = response_format is not None and response_format["type"] == "json_object"
        if wants_json:
            system = f"{system}\n\n{JSON_DIRECTIVE}" if system else JSON_DIRECTIVE
        # Cacheable: the instructions of a feature are the same from call to call. An empty block is refused.
        block: TextBlockParam = {"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}
        try:
            answer = await self._sdk.messages.create(
                model=self.model,
                max_tokens=max_tokens,
                system=[block] if system else anthropic.omit,
                messages=[{"role": "user", "content": user}],
            )
        # The SDK's errors quote the provider, which quotes keys and prompts: none is kept as a cause.
        except anthropic.APIStatusError as error:
            raise ProviderError(
                ANTHROPIC,
                FailureKind.STATUS,
                status=error.status_code,
                retry_after_s=retry_after_s(error.response.headers),
            ) from None
        except anthropic.APITimeoutError:
            raise ProviderError(ANTHROPIC, FailureKind.TIMEOUT) from None
        except anthropic.APIConnectionError:
            raise ProviderError(ANTHROPIC, FailureKind.CONNECTION) from None
        except (anthropic.AnthropicError, ValueError):  # the latter: JSON that is none
            raise ProviderError(ANTHROPIC, FailureKind.MALFORMED) from None
        return self._result(answer, wants_json=wants_json)

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._sdk.close()

    def _result(self, answer: object, *, wants_json: bool) -> LLMResult:
        # The SDK checks no types: an answer may be text, and any field anything.
        if not isinstance(answer, Message):
            raise ProviderError(ANTHROPIC, FailureKind.MALFORMED)
        try:
            text = "".join(block.text for block in answer.content if isinstance(block, TextBlock))
            read = answer.usage.cache_read_input_tokens or 0
            written = answer.usage.cache_creation_input_tokens or 0
            result = LLMResult(
                text=without_fences(text) if wants_json else text,
                provider=ANTHROPIC,
                model=answer.model or self.model,
                # The API counts cached tokens beside the others, not among them.
                input_tokens=answer.usage.input_tokens + read + written,
                output_tokens=answer.usage.output_tokens,
                cached_input_tokens=read,
                cache_write_tokens=written,
            )
        except (AttributeError, TypeError):
            raise ProviderError(ANTHROPIC, FailureKind.MALFORMED) from None
        return checked(result)
