"""A model without pinned files is told from another by what lies beside it, and named by its own files."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from loom_common.settings import SettingsError
from loom_embedding.domain.models import LOCAL_MODELS, MINILM, REQUIRED_FILES
from loom_embedding.model import open_model
from loom_embedding.providers.model_files import ModelFilesMissing
from loom_embedding.providers.unpinned import identified
from loom_embedding.settings import EmbeddingSettings

BGE = LOCAL_MODELS["local:bge-small"]
CONFIG = {
    "_name_or_path": "BAAI/bge-small-en-v1.5",
    "model_type": "bert",
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "vocab_size": 30522,
}


def lay(folder: Path, config: object, weights: str = "weights") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in REQUIRED_FILES:
        (folder / name).write_text(weights if name == "model.onnx" else "{}")
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


def test_other_files_under_one_name_are_another_model(tmp_path: Path) -> None:
    one = identified(BGE, lay(tmp_path / "one", CONFIG))
    assert one.id.startswith("local:bge-small@")
    assert replace(one, id=BGE.id) == BGE
    assert identified(BGE, lay(tmp_path / "same", {**CONFIG, "torch_dtype": "float32"})).id == one.id
    assert identified(BGE, lay(tmp_path / "other", CONFIG, "other weights")).id != one.id
    beside = lay(tmp_path / "beside", CONFIG)
    (beside / "model.onnx_data").write_text("more weights")
    assert identified(BGE, beside).id != one.id
    (tmp_path / "same" / "tokenizer.json").write_text("[]")
    assert identified(BGE, tmp_path / "same").id != one.id


def test_pinned_files_need_no_name_of_their_own(tmp_path: Path) -> None:
    assert identified(LOCAL_MODELS[MINILM], tmp_path) is LOCAL_MODELS[MINILM]


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({**CONFIG, "num_hidden_layers": 6}, "num_hidden_layers"),
        ({**CONFIG, "hidden_size": 512}, "hidden_size"),
        ({**CONFIG, "vocab_size": 250_002}, "vocab_size"),
        ({**CONFIG, "model_type": "xlm-roberta"}, "model_type"),
        ({**CONFIG, "_name_or_path": "intfloat/e5-small-v2"}, "e5-small"),
        ({}, "model_type"),
        ("no json", "cannot be read"),
        ("[]", "cannot be read"),
    ],
    ids=str,
)
def test_files_of_another_model_are_refused_and_the_difference_named(tmp_path: Path, config: object, word: str) -> None:
    with pytest.raises(ModelFilesMissing, match=word) as caught:
        identified(BGE, lay(tmp_path / "local-bge-small", config))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", None, "/root/.cache/torch/sentence_transformers/BAAI_bge-small-en/"])
def test_a_name_that_says_nothing_else_is_taken(tmp_path: Path, name: str | None) -> None:
    identified(BGE, lay(tmp_path / "bge", {**CONFIG, "_name_or_path": name}))


async def test_another_model_of_the_same_width_does_not_open_under_this_name(
    tmp_path: Path, minilm_folder: Path
) -> None:
    shutil.copytree(minilm_folder, tmp_path / "local-bge-small")
    given = EmbeddingSettings.load(
        environ={"LOOM_EMBEDDING_MODEL": "local:bge-small", "LOOM_EMBEDDING_MODEL_DIR": str(tmp_path)}
    )
    with pytest.raises(SettingsError, match="num_hidden_layers"):
        async with open_model(given):
            pass
    (tmp_path / "local-bge-small" / "config.json").write_text(json.dumps(CONFIG))
    async with open_model(given) as opened:
        assert opened.served.name == opened.embedder.model_name
        assert opened.served.name.startswith("local:bge-small@")
