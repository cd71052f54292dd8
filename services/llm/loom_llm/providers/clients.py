"""Builds the clients of models: one set of connections per provider, and what all calls to it have in common."""

import asyncio
import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self, TypeAlias, assert_never

import httpx2

from loom_common.providers import RetryPolicy, Sleep
from loom_llm.domain.client import LLMClient
from loom_llm.domain.selection import ANTHROPIC, FAKE, OPENAI, Provider, Selection
from loom_llm.domain.traits import LEARNING_WAIT_S, Traits
from loom_llm.providers.fake import FakeClient
from loom_llm.providers.retrying import RetryingClient
from loom_llm.providers.sdk import Endpoint
from loom_llm.providers.shaped import ShapedClient
from loom_llm.providers.wire import Wire

_MODULES: Final[dict[Provider, str]] = {
    OPENAI: "loom_llm.providers.openai",
    ANTHROPIC: "loom_llm.providers.anthropic",
}


OpenHttp: TypeAlias = Callable[[Endpoint], httpx2.AsyncClient]
"""Opens the HTTP client that a provider is asked with."""


@dataclass(frozen=True, slots=True)
class Access:
    """How one provider is reached."""

    endpoint: Endpoint
    effort: str | None = None
    """Effort to ask for; None for the provider's usual."""


class Clients:
    """Builds clients of models. An async context manager: connections close when it is left.

    Args:
        access: The providers that can be asked.
        policy: When calls are tried again.
        reserve_max: Most tokens that are added to a cap for hidden reasoning.
        learning_wait_s: Longest time that a call waits for what another one learns of the model.
        sleep: Waits between attempts.
        open_http: Opens a provider's HTTP client; None: one that names nobody.
    """

    def __init__(
        self,
        access: dict[Provider, Access],
        policy: RetryPolicy,
        *,
        reserve_max: int,
        learning_wait_s: float = LEARNING_WAIT_S,
        sleep: Sleep = asyncio.sleep,
        open_http: OpenHttp | None = None,
    ) -> None:
        self._access = access
        self._policy = policy
        self._reserve_max = reserve_max
        self._learning_wait_s = learning_wait_s
        self._sleep = sleep
        self._open_http = open_http
        self._wires: dict[Provider, Wire] = {}
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for wire in self._wires.values():
            await wire.aclose()

    async def client(self, selection: Selection) -> LLMClient:
        """Returns a client of the selected model."""
        if selection.provider == FAKE:
            return FakeClient(selection.model)
        wire = await self._wire(selection.provider)
        traits = Traits(
            selection.model, wire.wished(), reserve_max=self._reserve_max, learning_wait_s=self._learning_wait_s
        )
        return RetryingClient(ShapedClient(wire, selection.model, traits), self._policy, sleep=self._sleep)

    async def _wire(self, provider: Provider) -> Wire:
        async with self._opening:
            if provider not in self._wires:
                # An SDK is loaded where it is used alone, and beside the event loop: each takes a second or more.
                await asyncio.to_thread(importlib.import_module, _MODULES[provider])
                access = self._access[provider]
                if self._open_http is not None:
                    http_client = self._open_http(access.endpoint)
                    access = replace(access, endpoint=replace(access.endpoint, http_client=http_client))
                self._wires[provider] = _open(provider, access)
            return self._wires[provider]


def _open(provider: Provider, access: Access) -> Wire:
    match provider:
        case "openai":
            from loom_llm.providers.openai import OpenAIWire

            return OpenAIWire(access.endpoint, effort=access.effort)
        case "anthropic":
            from loom_llm.providers.anthropic import AnthropicWire

            return AnthropicWire(access.endpoint, effort=access.effort)
        case "fake":
            raise ValueError("the fake has no endpoint")
        case _:
            assert_never(provider)
