"""Opens the model that a process serves, from its settings: the one place that knows every provider."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import structlog

from loom_common.ledger import LedgerSink
from loom_common.model_calls.gate import OPEN_GATE, Gate, ModelCallGate
from loom_common.orphans import Orphans
from loom_common.providers import ProviderHealth
from loom_common.settings import SettingsError
from loom_embedding.domain.embedder import FAKE, LOCAL, OPENAI, Embedder, ServedModel, Tokens
from loom_embedding.domain.models import LOCAL_MODELS, LocalModel
from loom_embedding.domain.remote_models import REMOTE_MODELS, UNKNOWN_NOISE_FLOOR, WINDOW_TOKENS
from loom_embedding.domain.selection import Selection, UnknownModel, select
from loom_embedding.domain.vectors import MalformedEmbedding, unit_vector
from loom_embedding.domain.views import UnusableView, View, views_over
from loom_embedding.providers.alias import AliasEmbedder
from loom_embedding.providers.api import EmbeddingApi
from loom_embedding.providers.batches import BatchQueue
from loom_embedding.providers.fake import FakeEmbedder, FakeTokens, fake_model
from loom_embedding.providers.local import LocalEmbedder, LocalTokens, OnnxModel, local_model
from loom_embedding.providers.model_files import ModelFilesMissing, ensure_model, shared_models_dir
from loom_embedding.providers.prefix import PrefixEmbedder
from loom_embedding.providers.unpinned import identified
from loom_embedding.settings import EmbeddingSettings

_log = structlog.get_logger(__name__)


def _unseen() -> int | None:
    return None


@dataclass(frozen=True, slots=True)
class OpenModel:
    """The model that this process serves, ready to embed."""

    selection: Selection
    embedder: Embedder
    tokens: Tokens
    served: ServedModel
    health: ProviderHealth = field(default_factory=ProviderHealth)
    """How calls to its provider end."""
    seen_dim: Callable[[], int | None] = _unseen
    """Returns the width that its provider answers; None before it has."""
    views: Mapping[str, Embedder] = field(default_factory=lambda: MappingProxyType({}))
    """The views over it that the settings list, by label."""
    gate: Gate = OPEN_GATE
    """What every call passes first, before caches; open for a model in this process, whose texts go nowhere."""
    orphans: Orphans | None = None
    """Sees to what its provider still bills for calls whose callers are gone; None where nothing does."""

    @property
    def remote(self) -> bool:
        """Whether it is called over the network."""
        return self.served.provider not in {FAKE, LOCAL}


@asynccontextmanager
async def open_model(
    settings: EmbeddingSettings, gate: ModelCallGate | None = None, ledger: LedgerSink | None = None
) -> AsyncIterator[OpenModel]:
    """Opens the model that the settings ask for; its threads and connections end when it is left.

    Args:
        settings: Its settings.
        gate: What calls to a remote model pass first, and what they say of whom they are for; None lets all pass.
        ledger: Takes what a remote model costs that no caller hears of; None: such a call is cut with its caller.

    Raises:
        SettingsError: It is unknown, its files are not here, or they are another model's; or a view cannot be had.
    """
    selection = _selected(settings)
    views = _views(settings, selection)
    if selection.provider == FAKE:
        opened = _fake(selection)
        yield _with_views(opened, views)
    elif selection.provider == LOCAL:
        async with _local(selection, settings) as opened:
            yield _with_views(opened, views)
    else:
        async with _remote(selection, settings, gate, ledger) as opened:
            yield _with_views(opened, views)


def _selected(settings: EmbeddingSettings) -> Selection:
    try:
        return select(settings.provider, settings.model, settings.dim, settings.reachable)
    except UnknownModel as error:
        raise SettingsError(str(error)) from None


def _views(settings: EmbeddingSettings, selection: Selection) -> list[View]:
    labels = settings.code_search_vector_models
    if labels and selection.key_missing:
        # The fake stands in for the served model only: a second vector beside it would never be found out.
        raise SettingsError(
            f"LOOM_CODE_SEARCH_VECTOR_MODELS asks for views over {selection.wanted_model}, and "
            f"{selection.key_variables} is not set."
        )
    try:
        return views_over(labels, selection.model, selection.dim)
    except UnusableView as error:
        raise SettingsError(f"LOOM_CODE_SEARCH_VECTOR_MODELS: {error}") from None


def _with_views(opened: OpenModel, views: list[View]) -> OpenModel:
    made: dict[str, Embedder] = {}
    for view in views:
        # A model without pinned files is served under a longer name than it is asked for by.
        stored_name = view.label.removesuffix(view.model) + opened.served.name
        if view.dim is not None:
            made[view.label] = PrefixEmbedder(stored_name, opened.embedder, view.dim)
        else:
            made[view.label] = AliasEmbedder(stored_name, opened.embedder)
    return replace(opened, views=MappingProxyType(made))


def _fake(selection: Selection) -> OpenModel:
    if selection.key_missing:
        _log.error(
            "fake_embedder",
            model=selection.model,
            reason="key_missing",
            wanted=selection.wanted_model,
            set=selection.key_variables,
        )
    else:
        _log.error("fake_embedder", model=selection.model, reason="asked_for")
    return OpenModel(
        selection,
        FakeEmbedder(selection.model, selection.dim),
        FakeTokens(),
        fake_model(selection.model, selection.dim),
    )


@asynccontextmanager
async def _local(selection: Selection, settings: EmbeddingSettings) -> AsyncIterator[OpenModel]:
    model, tokens, onnx = await asyncio.to_thread(_loaded, LOCAL_MODELS[selection.model], settings)
    queue = BatchQueue(onnx.embed_batch, max_waiting=settings.queue_size, threads=settings.threads)
    try:
        _log.info("embedder_ready", model=model.id, dim=model.dim, threads=settings.threads)
        yield OpenModel(selection, LocalEmbedder(model, tokens, queue), tokens, local_model(model))
    finally:
        await queue.aclose()


def _loaded(model: LocalModel, settings: EmbeddingSettings) -> tuple[LocalModel, LocalTokens, OnnxModel]:
    """Loads a local model and embeds one word with it: the first call is slow, and it shows whether the width is so."""
    # A directory that the operator names is the only one that counts.
    shared = shared_models_dir() if settings.model_dir is None else None
    try:
        folder = ensure_model(model, settings.models_dir, shared)
        model = identified(model, folder)
    except ModelFilesMissing as error:
        raise SettingsError(str(error)) from None
    try:
        tokens, onnx = LocalTokens(folder), OnnxModel(model, folder)
        unit_vector(onnx.embed_batch(["word"])[0], model.dim)
    except MalformedEmbedding:
        raise SettingsError(f"The files in {folder} are another model's than {model.id}: its width differs.") from None
    except Exception as error:  # noqa: BLE001 - the runtime raises kinds of its own; the log holds it
        _log.exception("model_not_loaded", model=model.id)
        raise SettingsError(
            f"The files of {model.id} in {folder} cannot be loaded ({type(error).__name__}). Remove that folder, "
            "or put the model's own files there."
        ) from None
    return model, tokens, onnx


@asynccontextmanager
async def _remote(
    selection: Selection, settings: EmbeddingSettings, gate: ModelCallGate | None, ledger: LedgerSink | None
) -> AsyncIterator[OpenModel]:
    # Loaded where they are used alone: the SDK takes seconds, which every start would wait for.
    from loom_embedding.providers.remote import RemoteEmbedder, retry_policy

    served = remote_served(selection, settings.window_tokens)
    try:
        tokens = await asyncio.to_thread(_remote_tokens, selection.provider)
    except ModelFilesMissing as error:
        raise SettingsError(str(error)) from None
    health, api = ProviderHealth(), await asyncio.to_thread(_api, selection, settings, gate)
    policy = retry_policy(settings.retry_attempts, settings.retry_max_wait_s)
    passed = gate or OPEN_GATE
    async with AsyncExitStack() as stack:
        stack.push_async_callback(api.aclose)
        orphans = None
        if ledger is not None:
            orphans = await stack.enter_async_context(Orphans(ledger, recorder="embedding", op="embedding.embed_many"))
        embedder = RemoteEmbedder(
            served, api, tokens, policy, health, max_waiting=settings.queue_size, gate=passed, orphans=orphans
        )
        _log.info("embedder_ready", model=served.name, dim=served.dim, provider=served.provider)
        yield OpenModel(
            selection, embedder, tokens, served, health, lambda: embedder.seen_dim, gate=passed, orphans=orphans
        )


def remote_served(selection: Selection, window_tokens: int | None = None) -> ServedModel:
    """Returns what callers must know of a remote model."""
    known = REMOTE_MODELS.get(selection.model)
    return ServedModel(
        selection.model,
        selection.dim,
        selection.provider,
        window_tokens or WINDOW_TOKENS[selection.provider],
        special_tokens=0,  # the providers' limits leave theirs out
        noise_floor=known.noise_floor if known is not None else UNKNOWN_NOISE_FLOOR,
    )


def _remote_tokens(provider: str) -> Tokens:
    from loom_embedding.providers.tokens import CautiousTokens, Cl100kTokens

    return Cl100kTokens() if provider == OPENAI else CautiousTokens()


def _api(selection: Selection, settings: EmbeddingSettings, gate: ModelCallGate | None) -> EmbeddingApi:
    key = settings.keys.get(selection.provider)
    timeout_s, connect_timeout_s = settings.http_client_timeout_s, settings.http_client_connect_timeout_s
    http_client = None
    if gate is not None:
        from loom_common.model_calls.client import ModelClient

        http_client = ModelClient(gate.policy, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s)
    if selection.provider == OPENAI:
        from loom_embedding.providers.openai import NO_KEY, OpenAIApi

        return OpenAIApi(
            selection.model,
            selection.asked_dim,
            key or NO_KEY,
            base_url=settings.openai_base_url,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            http_client=http_client,
        )
    from loom_embedding.providers.gemini import GeminiApi

    return GeminiApi(
        selection.model,
        selection.asked_dim,
        key,
        base_url=settings.gemini_base_url,
        timeout_s=timeout_s,
        connect_timeout_s=connect_timeout_s,
        http_client=http_client,
    )
