"""What the embedding service's tests share: the default model, loaded once, and remote models that never wait."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.embedding import MakeRig, RemoteRig, remote_rig
from support.providers import ProviderStandIn

from loom_embedding.domain.models import LOCAL_MODELS, MINILM
from loom_embedding.providers.local import LocalTokens, OnnxModel
from loom_embedding.providers.model_files import ensure_model, shared_models_dir


@pytest.fixture(scope="session")
def minilm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_model(LOCAL_MODELS[MINILM], tmp_path_factory.mktemp("models"), shared_models_dir())


@pytest.fixture(scope="session")
def minilm_tokens(minilm_folder: Path) -> LocalTokens:
    return LocalTokens(minilm_folder)


@pytest.fixture(scope="session")
def minilm(minilm_folder: Path) -> OnnxModel:
    return OnnxModel(LOCAL_MODELS[MINILM], minilm_folder)


@pytest.fixture
async def stand_in() -> AsyncIterator[ProviderStandIn]:
    async with ProviderStandIn().running() as server:
        yield server


@pytest.fixture
async def rig(stand_in: ProviderStandIn) -> AsyncIterator[MakeRig]:
    """Makes a remote embedder of the provider that is named, against the stand-in, which never waits."""
    made: list[RemoteRig] = []

    def make(provider: str, **more: float) -> RemoteRig:
        made.append(remote_rig(provider, stand_in, **more))
        return made[-1]

    yield make
    for one in made:
        await one.api.aclose()
