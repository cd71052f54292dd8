"""Builds the llm service: the provider's client, the use case, the server."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import assert_never

import structlog

from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.peers import open_peers
from loom_common.server import RunningServer, Service, ServiceSpec, serving
from loom_llm.api.llm import LlmServicer
from loom_llm.app.completion import Completion
from loom_llm.app.health import ProviderHealth
from loom_llm.app.orphans import Orphans
from loom_llm.app.status import LlmStatus
from loom_llm.domain.client import LLMClient
from loom_llm.domain.selection import KEY_VARIABLES, Selection, select
from loom_llm.providers.fake import FakeClient
from loom_llm.providers.retrying import RetryingClient, RetryPolicy
from loom_llm.settings import LlmSettings

NAME = "llm"
FULL_NAME = "loom.llm.v1.LlmService"

# What a call needs beside its provider: gates, translation, the way back. Source: chosen.
_MARGIN_S = 5.0

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_service(settings: LlmSettings, ch: ClickHouse) -> AsyncIterator[RunningServer]:
    """Serves `loom.llm.v1` until it is left.

    Args:
        settings: Its settings.
        ch: The database; this service keeps nothing in it.

    Raises:
        SettingsError: A key file of the service is missing.
        ListenError: The address cannot be bound.
    """
    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(open_peers(settings, NAME))
        selection = select(settings.provider, settings.model, settings.keys)
        _log_selection(selection)
        client = await stack.enter_async_context(open_client(selection, settings))
        health = ProviderHealth()
        # Entered after the client and the ledger's sink, both of which it needs to its end.
        orphans = await stack.enter_async_context(Orphans(peers.ledger))
        completion = Completion(client, health, orphans, reads_llm_free=settings.reads_llm_free)
        servicer = LlmServicer(completion, selection)
        spec = ServiceSpec(
            name=NAME,
            listen=settings.llm_listen,
            services=[Service(pb_grpc.add_LlmServiceServicer_to_server, servicer, FULL_NAME)],
            status=LlmStatus(selection, health, require_real=settings.require_real_providers),
        )
        yield await stack.enter_async_context(serving(spec, with_room_for_models(settings), peers.deps))


@asynccontextmanager
async def open_client(selection: Selection, settings: LlmSettings) -> AsyncIterator[LLMClient]:
    """Opens the client of the selected model; its connections close when it is left.

    An SDK is loaded where it is used alone: each takes a second or more, which every start would wait for.
    """
    async with AsyncExitStack() as stack:
        policy = RetryPolicy(settings.retry_attempts, settings.retry_max_wait_s, settings.total_deadline_s)
        match selection.provider:
            case "fake":
                yield FakeClient(selection.model)
            case "openai":
                from loom_llm.providers.openai import OpenAIClient

                openai = OpenAIClient(
                    selection.model,
                    settings.keys["openai"].get_secret_value(),
                    base_url=settings.openai_base_url,
                    timeout_s=settings.request_timeout_s,
                )
                stack.push_async_callback(openai.aclose)
                yield RetryingClient(openai, policy)
            case "anthropic":
                from loom_llm.providers.anthropic import AnthropicClient

                anthropic = AnthropicClient(
                    selection.model,
                    settings.keys["anthropic"].get_secret_value(),
                    base_url=settings.anthropic_base_url,
                    timeout_s=settings.request_timeout_s,
                )
                stack.push_async_callback(anthropic.aclose)
                yield RetryingClient(anthropic, policy)
            case _:
                assert_never(selection.provider)


def with_room_for_models(settings: LlmSettings) -> LlmSettings:
    """Returns the settings with room for a model's whole time: here it is the bound, not the server's."""
    longest_s = max(settings.grpc_max_call_s, settings.total_deadline_s + _MARGIN_S)
    return settings.model_copy(update={"grpc_max_call_s": longest_s})


def _log_selection(selection: Selection) -> None:
    if selection.key_missing:
        _log.warning(
            "llm_key_missing", provider=selection.wanted_provider, set=KEY_VARIABLES[selection.wanted_provider]
        )
    if selection.provider == "fake":
        _log.warning("fake_llm", model=selection.model)
    if selection.inferred:
        _log.info(
            "llm_provider_inferred", provider=selection.provider, model=selection.model, source=selection.source.value
        )
