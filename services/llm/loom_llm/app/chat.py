"""Streams answers: the gate first, then the provider, then what it cost, whoever ended the stream."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from loom_common import call
from loom_common.clock import Clock, SystemClock
from loom_common.errors import LoomError
from loom_common.orphans import Orphans
from loom_common.providers import ProviderError, provider_failed
from loom_common.telemetry.genai import PromptRef, prompted
from loom_common.usage import Usage
from loom_llm.app.gate import Gate
from loom_llm.app.models import Models
from loom_llm.app.usage import usage_of
from loom_llm.domain.client import LLMClient
from loom_llm.domain.messages import Assembly, ChatRequest, Delta, LLMResult
from loom_llm.domain.opening import opened
from loom_llm.domain.spending import Wasted, collecting

# Source: the providers' own rule of thumb for English text. Used only where a stream's usage does not come.
_BYTES_PER_TOKEN: Final = 4


class Chat:
    """Streams answers.

    Args:
        models: The models.
        orphans: Records what streams cost that their callers left.
        gate: Says whether a call may have an answer.
        clock: Clock of the records.
    """

    def __init__(self, models: Models, orphans: Orphans, gate: Gate, clock: Clock | None = None) -> None:
        self._models = models
        self._orphans = orphans
        self._gate = gate
        self._clock = clock or SystemClock()

    async def stream(
        self, request: ChatRequest, model: str = "", reference: PromptRef | None = None
    ) -> AsyncGenerator[Delta, None]:
        """Yields the model's answer piece by piece; the last piece carries the whole and what it cost.

        Closing the generator ends the provider's stream. What was spent by then is recorded.

        Args:
            request: What is asked.
            model: Model to ask; empty for the served one.
            reference: Which prompt of Loom's it is, for traces.

        Raises:
            ModelCallUnattributed: Nobody says whom the call is for.
            ReadsLlmFree: It is for an operation that only reads, and the deployment keeps models out of these.
            ProviderFailed: The provider did not answer, or broke off. The latter may come after pieces.
        """
        await self._gate.require()
        client = await self._models.client(model)
        started_at, started_s = self._clock.now(), time.monotonic()
        seen = Assembly()
        result: LLMResult | None = None
        wasted: Wasted = []
        try:
            # The request is sent, and its span begins, while the stream is opened.
            with prompted(reference), collecting() as wasted:
                stream = await opened(client.chat(request))
            async with aclosing(stream.deltas()) as deltas:
                async for delta in deltas:
                    seen.add(delta)
                    result = delta.result
                    yield delta
            if result is not None:
                # Only now: what a reader costs that leaves at the last piece is recorded below, and once is enough.
                counted = result.input_tokens or result.output_tokens
                call.current().usage.merge(
                    _usage(wasted, result if counted else _estimate(client, request, seen)),
                )
        except ProviderError as error:
            spent = [_estimate(client, request, seen)] if seen.begun else []
            call.current().usage.merge(_usage(wasted, *spent))
            raise provider_failed(error) from None
        except LoomError:
            call.current().usage.merge(_usage(wasted))
            raise
        except (asyncio.CancelledError, GeneratorExit):
            left = result or _estimate(client, request, seen)
            self._orphans.left(_usage(wasted, left), started_at, started_s)
            raise


def _usage(wasted: Wasted, *results: LLMResult) -> Usage:
    """Returns what answers cost, and what was paid for in vain before them."""
    usage = Usage()
    for result in (*results, *wasted):
        usage.merge(usage_of(result))
    return usage


def _estimate(client: LLMClient, request: ChatRequest, seen: Assembly) -> LLMResult:
    """Returns what a stream cost whose provider did not tell: the prompt, and what was read of the answer."""
    said = [seen.text, *(f"{one.name}{one.arguments}" for one in seen.tool_calls)]
    asked = [request.system, *(message.text for message in request.messages)]
    asked += [one.arguments for message in request.messages for one in message.tool_calls]
    asked += [f"{tool.name}{tool.description}{tool.parameters}" for tool in request.tools]
    return LLMResult(
        text=seen.text,
        provider=client.provider,
        model=client.model,
        input_tokens=seen.input_tokens or _tokens(asked),
        output_tokens=_tokens(said) if seen.begun else 0,
    )


def _tokens(texts: list[str]) -> int:
    return -(-sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) // _BYTES_PER_TOKEN)
