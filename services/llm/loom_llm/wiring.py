"""Builds the llm service: the models, the use cases, the server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import httpx2
import structlog

from loom.llm.v1 import llm_pb2_grpc as pb_grpc
from loom_common.budget import Budget, GrpcSpend
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock, SystemClock
from loom_common.erasure import HeldTable, Subject, erasure_service
from loom_common.migrations import migrate
from loom_common.model_calls.client import ModelClient
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.holds import Holds
from loom_common.model_calls.policy import InferencePolicy
from loom_common.orphans import Orphans
from loom_common.peers import open_peers
from loom_common.server import RunningServer, Service, ServiceSpec, serving
from loom_llm.api.llm import LlmServicer
from loom_llm.app.asking import Asking
from loom_llm.app.cache import AnswerCache
from loom_llm.app.chat import Chat
from loom_llm.app.classify import Classify
from loom_llm.app.completion import Completion
from loom_llm.app.fallback import FallbackClient
from loom_llm.app.gate import Gate
from loom_llm.app.models import Models
from loom_llm.app.rerank import Rerank
from loom_llm.app.status import LlmStatus
from loom_llm.app.watching import Healths, WatchedClient
from loom_llm.domain.client import LLMClient
from loom_llm.domain.endpoints import Address, RerankEndpoint, parse_classify_endpoints, parse_rerank_endpoints
from loom_llm.domain.policy import TrafficPolicies, parse_policies
from loom_llm.domain.selection import (
    ANTHROPIC,
    FAKE,
    KEY_VARIABLES,
    OPENAI,
    Provider,
    Selection,
    provider_of,
    select,
)
from loom_llm.providers.clients import Access, Clients, OpenHttp
from loom_llm.providers.endpoints import EndpointClient
from loom_llm.providers.retrying import retry_policy
from loom_llm.providers.sdk import CONNECT_TIMEOUT_S, Endpoint
from loom_llm.settings import LlmSettings
from loom_llm.store.answers import TABLE, AnswerRepository
from loom_llm.store.census import CENSUS, marks_of

NAME = "llm"
PACKAGE = "loom_llm"
FULL_NAME = "loom.llm.v1.LlmService"

# What a call needs beside its provider: gates, translation, the way back. Source: chosen.
_MARGIN_S = 5.0

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_service(settings: LlmSettings, ch: ClickHouse) -> AsyncIterator[RunningServer]:
    """Serves `loom.llm.v1` until it is left.

    Args:
        settings: Its settings.
        ch: The database; answers are kept in it.

    Raises:
        SettingsError: A key file of the service is missing.
        ListenError: The address cannot be bound.
    """
    await migrate(ch, NAME, PACKAGE)
    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(open_peers(settings, NAME))
        selection = select(settings.provider, settings.model, settings.keys)
        _log_selection(selection)
        healths = Healths()
        model_calls = peers.model_calls(settings)
        holds = Holds()
        clients = await stack.enter_async_context(open_clients(settings, model_calls, holds))
        endpoints = open_endpoints(settings, model_calls.policy, holds)
        stack.push_async_callback(endpoints.aclose)
        models = await open_models(selection, settings, clients, healths)
        cache = open_cache(settings, ch)
        stack.push_async_callback(cache.aclose)
        # Entered after the clients, the cache and the ledger's sink, which it needs to its end.
        orphans = await stack.enter_async_context(Orphans(peers.ledger, recorder=NAME, op="llm.complete"))
        spend = GrpcSpend(peers.channel(settings.insights_addr))
        budget = Budget(peers.directory, spend, settings.default_daily_cost_cap_usd)
        gate = Gate(
            reads_llm_free=settings.reads_llm_free,
            model_calls=model_calls,
            budget=budget if settings.keys or settings.cohere_api_key else None,
        )
        completion = Completion(models, orphans, gate, cache)
        asking = Asking(endpoints, healths, orphans)
        rerank = _rerank(settings, selection, gate, models, completion, asking)
        classify = Classify(
            gate,
            asking,
            parse_classify_endpoints(settings.classify_endpoints.get_secret_value()),
            timeout_s=settings.classify_timeout_s,
        )
        servicer = LlmServicer(completion, Chat(models, orphans, gate), rerank, classify, cache, selection)
        spec = ServiceSpec(
            name=NAME,
            listen=settings.llm_listen,
            services=[
                Service(pb_grpc.add_LlmServiceServicer_to_server, servicer, FULL_NAME),
                erasure_service(ch, census_over(cache)),
            ],
            status=LlmStatus(selection, healths, require_real=settings.require_real_providers, more=rerank.problems),
        )
        yield await stack.enter_async_context(serving(spec, with_room_for_models(settings), peers.deps))


def open_cache(settings: LlmSettings, ch: ClickHouse, clock: Clock | None = None) -> AnswerCache:
    """Returns the cache of answers, over a migrated database."""
    policies = TrafficPolicies(parse_policies(settings.policy_by_traffic_class))
    return AnswerCache(AnswerRepository(ch), policies, clock or SystemClock(), alone=ch.exclusive)


def census_over(cache: AnswerCache) -> tuple[HeldTable, ...]:
    """Returns the census of llm; answers are erased through the cache, which also holds some in memory."""

    async def erase(subject: Subject) -> None:
        for namespace, (keys, tags) in marks_of(subject).items():
            await cache.erase(subject.org, namespace, keys, tags)

    return tuple(replace(held, erased_with=erase) if held.table == TABLE.name else held for held in CENSUS)


def open_endpoints(settings: LlmSettings, policy: InferencePolicy, holds: Holds | None = None) -> EndpointClient:
    """Returns what asks rerankers and classifiers; whoever opens it closes it.

    Args:
        settings: Their settings.
        policy: What calls say of whom they are for.
        holds: What jobs hold, of all providers.
    """
    longest_s = max(settings.rerank_timeout_s, settings.classify_timeout_s)
    return EndpointClient(
        lambda: ModelClient(policy, timeout_s=longest_s, connect_timeout_s=CONNECT_TIMEOUT_S, holds=holds),
        retry_policy(attempts=settings.retry_attempts, max_wait_s=settings.retry_max_wait_s, total_s=longest_s),
    )


def _rerank(
    settings: LlmSettings, selection: Selection, gate: Gate, models: Models, completion: Completion, asking: Asking
) -> Rerank:
    cohere = None
    if (key := settings.cohere_api_key) is not None:
        url = f"{settings.cohere_base_url.rstrip('/')}/v2/rerank"
        cohere = RerankEndpoint(Address(url, {"authorization": f"Bearer {key.get_secret_value()}"}))
    return Rerank(
        gate,
        models,
        completion,
        asking,
        parse_rerank_endpoints(settings.rerank_endpoints.get_secret_value()),
        cohere,
        timeout_s=settings.rerank_timeout_s,
        fake=selection.provider == FAKE,
        require_real=settings.require_real_providers,
    )


def open_clients(
    settings: LlmSettings, model_calls: ModelCallGate | None = None, holds: Holds | None = None
) -> Clients:
    """Returns what builds clients of models, for every provider whose key is set.

    Args:
        settings: Their settings.
        model_calls: What calls say of whom they are for; None: nothing.
        holds: What jobs hold, of all providers.
    """
    policy = retry_policy(
        attempts=settings.retry_attempts,
        max_wait_s=settings.retry_max_wait_s,
        total_s=settings.total_deadline_s,
    )
    base_urls: dict[Provider, str] = {OPENAI: settings.openai_base_url, ANTHROPIC: settings.anthropic_base_url}
    efforts: dict[Provider, str | None] = {
        OPENAI: settings.openai_reasoning_effort,
        ANTHROPIC: settings.anthropic_effort,
    }
    access = {
        provider: Access(
            Endpoint(key.get_secret_value(), base_urls[provider], settings.request_timeout_s), efforts[provider]
        )
        for provider, key in settings.keys.items()
    }
    return Clients(
        access,
        policy,
        reserve_max=settings.hidden_reasoning_reserve_max,
        open_http=_open_http(model_calls.policy, holds or Holds()) if model_calls is not None else None,
    )


def _open_http(policy: InferencePolicy, holds: Holds) -> OpenHttp:
    """Returns what opens the providers' HTTP clients. What jobs hold counts for all of them."""

    def open_http(endpoint: Endpoint) -> httpx2.AsyncClient:
        return ModelClient(policy, timeout_s=endpoint.timeout_s, connect_timeout_s=CONNECT_TIMEOUT_S, holds=holds)

    return open_http


async def open_models(selection: Selection, settings: LlmSettings, clients: Clients, healths: Healths) -> Models:
    """Returns the models that can be asked; the served one, and the fallback, are ready."""

    async def watched(chosen: Selection) -> LLMClient:
        client = await clients.client(chosen)
        return WatchedClient(client, healths.of(client.provider))

    second = await _fallback(selection, settings, watched)

    async def build(chosen: Selection) -> LLMClient:
        if second is not None and chosen.model == second.model:
            return second
        client = await watched(chosen)
        if second is None or chosen.provider == FAKE:
            return client
        return FallbackClient(client, second, total_s=settings.total_deadline_s)

    return Models(selection, await build(selection), frozenset(settings.keys), build)


async def _fallback(
    served: Selection, settings: LlmSettings, build: Callable[[Selection], Awaitable[LLMClient]]
) -> LLMClient | None:
    """Returns the client of the fallback model; None where none is set, or where it could only be the fake."""
    model = settings.fallback_model
    if model is None:
        return None
    wanted = provider_of(model) or served.wanted_provider
    chosen = select(wanted, model, settings.keys)
    if chosen.key_missing:
        # An echo in place of an answer that failed would be taken for one.
        _log.warning("llm_fallback_key_missing", provider=wanted, model=model, set=KEY_VARIABLES[wanted])
        return None
    return await build(chosen)


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
