"""Builds the embedding service: the model, the use cases, the server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog

from loom.embedding.v1 import embedding_pb2_grpc as pb_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock, SystemClock
from loom_common.peers import open_peers
from loom_common.server import RunningServer, Service, ServiceSpec, serving
from loom_common.settings import SettingsError
from loom_common.status import FixedStatus
from loom_embedding.api.embedding import EmbeddingServicer
from loom_embedding.app.queries import QueryCache, QueryEmbedding
from loom_embedding.app.status import status_of
from loom_embedding.app.texts import TextEmbedding
from loom_embedding.domain.embedder import FAKE, Embedder, ServedModel, Tokens
from loom_embedding.domain.models import LOCAL_MODELS, LocalModel
from loom_embedding.domain.selection import Selection, UnknownModel, select
from loom_embedding.domain.vectors import MalformedEmbedding, unit_vector
from loom_embedding.providers.batches import BatchQueue
from loom_embedding.providers.fake import FakeEmbedder, FakeTokens, fake_model
from loom_embedding.providers.local import LocalEmbedder, LocalTokens, OnnxModel, local_model
from loom_embedding.providers.model_files import ModelFilesMissing, ensure_model, shared_models_dir
from loom_embedding.settings import EmbeddingSettings

NAME = "embedding"
FULL_NAME = "loom.embedding.v1.EmbeddingService"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OpenModel:
    """The model that this process serves, ready to embed."""

    embedder: Embedder
    tokens: Tokens
    served: ServedModel


@asynccontextmanager
async def open_service(settings: EmbeddingSettings, ch: ClickHouse) -> AsyncIterator[RunningServer]:
    """Serves `loom.embedding.v1` until it is left.

    Args:
        settings: Its settings.
        ch: The database; this service keeps nothing in it.

    Raises:
        SettingsError: The settings ask for what cannot be served.
        ListenError: The address cannot be bound.
    """
    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(open_peers(settings, NAME))
        model = await stack.enter_async_context(open_model(settings))
        spec = ServiceSpec(
            name=NAME,
            listen=settings.embedding_listen,
            services=[
                Service(pb_grpc.add_EmbeddingServiceServicer_to_server, build_servicer(model, settings), FULL_NAME)
            ],
            status=FixedStatus(
                status_of(model.served, wanted_dim=settings.dim, require_real=settings.require_real_providers)
            ),
        )
        yield await stack.enter_async_context(serving(spec, settings, peers.deps))


def build_servicer(model: OpenModel, settings: EmbeddingSettings, clock: Clock | None = None) -> EmbeddingServicer:
    """Returns the servicer over an open model."""
    timer = (clock or SystemClock()).monotonic_s
    cache = QueryCache(settings.cache_size, settings.cache_ttl_s, timer)
    return EmbeddingServicer(
        QueryEmbedding(model.embedder, model.served, model.tokens, cache),
        TextEmbedding(model.embedder, model.served, model.tokens),
        model.served,
    )


@asynccontextmanager
async def open_model(settings: EmbeddingSettings) -> AsyncIterator[OpenModel]:
    """Opens the model that the settings ask for; its threads end when it is left.

    Raises:
        SettingsError: It is unknown, its files are not here, or they are another model's.
    """
    selection = _selected(settings)
    if selection.provider == FAKE:
        _log.error("fake_embedder", model=selection.model)
        yield OpenModel(
            FakeEmbedder(selection.model, selection.dim),
            FakeTokens(),
            fake_model(selection.model, selection.dim),
        )
        return
    model = LOCAL_MODELS[selection.model]
    tokens, onnx = await asyncio.to_thread(_loaded, model, settings)
    queue = BatchQueue(onnx.embed_batch, max_waiting=settings.queue_size)
    try:
        _log.info("embedder_ready", model=model.id, dim=model.dim, threads=settings.threads)
        yield OpenModel(LocalEmbedder(model, tokens, queue), tokens, local_model(model))
    finally:
        await queue.aclose()


def _selected(settings: EmbeddingSettings) -> Selection:
    try:
        return select(settings.provider, settings.model, settings.dim)
    except UnknownModel as error:
        raise SettingsError(str(error)) from None


def _loaded(model: LocalModel, settings: EmbeddingSettings) -> tuple[LocalTokens, OnnxModel]:
    """Loads a local model and embeds one word with it: the first call is slow, and it shows whether the width is so."""
    # A directory that the operator names is the only one that counts.
    shared = shared_models_dir() if settings.model_dir is None else None
    try:
        folder = ensure_model(model, settings.models_dir, shared)
    except ModelFilesMissing as error:
        raise SettingsError(str(error)) from None
    try:
        tokens, onnx = LocalTokens(folder), OnnxModel(model, folder, settings.threads)
        unit_vector(onnx.embed_batch(["word"])[0], model.dim)
    except MalformedEmbedding:
        raise SettingsError(f"The files in {folder} are another model's than {model.id}: its width differs.") from None
    except Exception as error:  # noqa: BLE001 - the runtime raises kinds of its own; the log holds it
        _log.exception("model_not_loaded", model=model.id)
        raise SettingsError(
            f"The files of {model.id} in {folder} cannot be loaded ({type(error).__name__}). Remove that folder, "
            "or put the model's own files there."
        ) from None
    return tokens, onnx
