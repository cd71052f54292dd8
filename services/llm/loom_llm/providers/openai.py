"""OpenAI, and servers that speak its chat completions, through the official SDK."""

from typing import Final

import openai
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from openai.types.shared_params import ResponseFormatJSONObject

from loom_llm.domain.client import DEFAULT_MAX_TOKENS, LLMResult, ResponseFormat
from loom_llm.domain.failures import FailureKind, ProviderError
from loom_llm.domain.selection import OPENAI
from loom_llm.providers.answers import checked, retry_after_s

BASE_URL: Final = "https://api.openai.com/v1"
CONNECT_TIMEOUT_S: Final = 5.0


class OpenAIClient:
    """Completes prompts through `chat/completions`.

    Args:
        model: Name of the model.
        api_key: Its key.
        base_url: Root of the API. Given always: the SDK would else take it from the environment.
        timeout_s: Longest silence of the provider.
    """

    provider = OPENAI

    def __init__(self, model: str, api_key: str, *, base_url: str = BASE_URL, timeout_s: float) -> None:
        self.model = model
        self._sdk = openai.AsyncOpenAI(
            api_key=api_key,
            base_url=base_url,
            max_retries=0,
            timeout=openai.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
        )

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        """See `LLMClient.complete`."""
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": user}]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        json_object: ResponseFormatJSONObject | openai.Omit = openai.omit
        if response_format is not None and response_format["type"] == "json_object":
            json_object = {"type": "json_object"}
        try:
            answer = await self._sdk.chat.completions.create(
                model=self.model, messages=messages, max_completion_tokens=max_tokens, response_format=json_object
            )
        # The SDK's errors quote the provider, which quotes keys and prompts: none is kept as a cause.
        except openai.APIStatusError as error:
            raise ProviderError(
                OPENAI,
                FailureKind.STATUS,
                status=error.status_code,
                retry_after_s=retry_after_s(error.response.headers),
            ) from None
        except openai.APITimeoutError:
            raise ProviderError(OPENAI, FailureKind.TIMEOUT) from None
        except openai.APIConnectionError:
            raise ProviderError(OPENAI, FailureKind.CONNECTION) from None
        except (openai.OpenAIError, ValueError):  # the latter: JSON that is none
            raise ProviderError(OPENAI, FailureKind.MALFORMED) from None
        return self._result(answer)

    async def aclose(self) -> None:
        """Closes its connections."""
        await self._sdk.close()

    def _result(self, answer: object) -> LLMResult:
        # The SDK checks no types: an answer may be text, and any field anything.
        if not isinstance(answer, ChatCompletion):
            raise ProviderError(OPENAI, FailureKind.MALFORMED)
        try:
            text = answer.choices[0].message.content or ""
            usage = answer.usage
            details = usage.prompt_tokens_details if usage is not None else None
            result = LLMResult(
                text=text,
                provider=OPENAI,
                model=answer.model or self.model,
                input_tokens=usage.prompt_tokens if usage is not None else 0,
                output_tokens=usage.completion_tokens if usage is not None else 0,
                cached_input_tokens=(details.cached_tokens or 0) if details is not None else 0,
            )
        except (AttributeError, IndexError, KeyError, TypeError):
            raise ProviderError(OPENAI, FailureKind.MALFORMED) from None
        return checked(result)
