"""Every local model of the table: its record, and, where its files are at hand, what it makes of texts."""

from pathlib import Path

import numpy as np
import pytest

from loom_embedding.domain.models import LOCAL_MODELS, MINILM, LocalModel
from loom_embedding.providers.local import OnnxModel
from loom_embedding.providers.model_files import ModelFilesMissing, ensure_model, shared_models_dir

TEXTS = [
    "The user prefers dark mode.",
    "She likes the dark theme best.",
    "",
    "a much longer text that makes the others in its batch be padded " * 12,
]


@pytest.mark.parametrize(
    ("name", "dim", "pooling"),
    [("local:minilm", 384, "mean"), ("local:bge-small", 384, "cls"), ("local:bge-base", 768, "cls")],
)
def test_the_widths_and_poolings_are_those_of_the_published_models(name: str, dim: int, pooling: str) -> None:
    model = LOCAL_MODELS[name]
    assert (model.dim, model.pooling, model.normalized) == (dim, pooling, True)


@pytest.mark.parametrize("model", LOCAL_MODELS.values(), ids=lambda model: model.id)
def test_a_model_at_hand_gives_a_text_one_vector_alone_batched_and_padded(model: LocalModel, tmp_path: Path) -> None:
    try:
        folder = ensure_model(model, tmp_path, shared_models_dir())
    except ModelFilesMissing:
        if model.id == MINILM:
            raise  # packages of this environment carry them
        pytest.skip(f"the files of {model.id} are not here: no package carries them")
    onnx = OnnxModel(model, folder)
    batched = onnx.embed_batch(TEXTS)
    alone = np.concatenate([onnx.embed_batch([text]) for text in TEXTS])
    assert batched.shape == (len(TEXTS), model.dim)
    assert np.abs(batched - alone).max() < 1e-5
    assert np.linalg.norm(batched, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-5)
    assert batched[0] @ batched[1] > model.noise_floor
