"""What the embedding service's tests share: the checked files of the default model, loaded once."""

from pathlib import Path

import pytest

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
    return OnnxModel(LOCAL_MODELS[MINILM], minilm_folder, threads=2)
