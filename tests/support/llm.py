"""Models that answer as a test tells them, and the parts of the llm service around them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from loom_common.ledger import LedgerSink
from loom_common.orphans import Orphans
from loom_common.providers import FailureKind, ProviderError
from loom_common.providers.http import ProviderHttp
from loom_llm.app.asking import Asking
from loom_llm.app.classify import Classify
from loom_llm.app.completion import Completion
from loom_llm.app.gate import Gate
from loom_llm.app.models import Models
from loom_llm.app.rerank import Rerank
from loom_llm.app.watching import Healths, WatchedClient
from loom_llm.domain.client import LLMClient
from loom_llm.domain.messages import DEFAULT_MAX_TOKENS, ChatRequest, Delta, LLMResult, ResponseFormat
from loom_llm.domain.selection import Selection, Source
from loom_llm.providers.endpoints import EndpointClient
from loom_llm.providers.retrying import retry_policy

NO_RETRIES = retry_policy(attempts=1, max_wait_s=0.0, total_s=5.0)


class ScriptedClient:
    """Answers or fails as told, in order; counts calls. A stream gives each answer's text word by word.

    Args:
        outcomes: What calls come to. An answer in a list with a failure behind it is a stream that breaks off.
        provider: Name of its provider.
        model: Name of the model.
        held: Whether calls wait for `release` before they come to their outcome.
    """

    def __init__(
        self,
        *outcomes: LLMResult | BaseException | Sequence[LLMResult | BaseException],
        provider: str = "openai",
        model: str = "gpt-6-luna",
        held: bool = False,
    ) -> None:
        self.provider = provider
        self.model = model
        self.outcomes = list(outcomes)
        self.held = held
        self.calls = 0
        self.open_streams = 0
        self.begun = asyncio.Event()
        """Set when a call has come."""
        self.release = asyncio.Event()
        """Calls that find no outcome wait for it, and then answer."""

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        """See `LLMClient.complete`."""
        self.calls += 1
        self.begun.set()
        if self.held:
            await self.release.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, BaseException):
            raise outcome
        if isinstance(outcome, LLMResult):
            return outcome
        await self.release.wait()
        return LLMResult("text", self.provider, self.model, input_tokens=11, output_tokens=7)

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """See `LLMClient.chat`. A stream that finds no outcome says `one` and then waits."""
        self.calls += 1
        self.open_streams += 1
        try:
            outcome = self.outcomes.pop(0) if self.outcomes else None
            parts = outcome if isinstance(outcome, Sequence) else (outcome,)
            for part in parts:
                if isinstance(part, BaseException):
                    raise part
                result = part or LLMResult("one", self.provider, self.model, input_tokens=11, output_tokens=7)
                for at, word in enumerate(result.text.split(" ")):
                    yield Delta(f" {word}" if at else word)
                self.begun.set()
                if part is None:
                    await self.release.wait()
                if len(parts) == 1:
                    yield Delta(result=result)
        finally:
            self.open_streams -= 1


def failure(status: int | None = None, kind: FailureKind = FailureKind.STATUS) -> ProviderError:
    """Returns a failure of the scripted provider."""
    return ProviderError("openai", kind, status=status)


def models_of(client: LLMClient, healths: Healths | None = None) -> Models:
    """Returns models of which `client` is the only one, watched as in the service."""
    watched = WatchedClient(client, (healths or Healths()).of(client.provider))

    async def build(selection: Selection) -> LLMClient:
        return watched

    return Models(Selection("openai", client.model, Source.KEY, "openai"), watched, frozenset({"openai"}), build)


def without_endpoints(models: Models, orphans: Orphans, gate: Gate) -> tuple[Rerank, Classify]:
    """Returns what reranks and classifies in a deployment that has no server for it."""
    client = EndpointClient(lambda: ProviderHttp(timeout_s=1, connect_timeout_s=1), NO_RETRIES)
    asking = Asking(client, Healths(), orphans)
    completion = Completion(models, orphans, gate)
    return (
        Rerank(gate, models, completion, asking, {}, None, timeout_s=1, fake=True),
        Classify(gate, asking, {}, timeout_s=1),
    )


def orphans_of(sink: LedgerSink) -> Orphans:
    """Returns what records orphans as in the service."""
    return Orphans(sink, recorder="llm", op="llm.complete")
