"""Models whose files no digest of this build knows: whose they are is read from them, and they name themselves.

What tells a model from another of the same width lies beside its weights; what tells one build of it from another is
their digest. It becomes part of the name that stands beside each vector, so that vectors of other files are those of
another model: never compared, and made anew by `loom reembed`.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from loom_embedding.domain.models import LocalModel
from loom_embedding.providers.model_files import ModelFilesMissing

# Weights above two gigabytes lie in files of their own beside the graph, such as `model.onnx_data`.
_DECIDING: Final = ("model.onnx*", "tokenizer.json")
# Source: chosen. Two builds of one model that are alike by chance are less likely than one in 10^14.
_DIGEST_CHARS: Final = 12


def identified(model: LocalModel, folder: Path) -> LocalModel:
    """Returns the model under the name that its files in `folder` give it; one whose files are pinned stays as it is.

    Raises:
        ModelFilesMissing: They are another model's, or do not say whose they are.
    """
    if model.files:
        return model
    _require_of(model, folder)
    digest = hashlib.sha256()
    for path in (path for pattern in _DECIDING for path in sorted(folder.glob(pattern))):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return replace(model, id=f"{model.id}@{digest.hexdigest()[:_DIGEST_CHARS]}")


def _require_of(model: LocalModel, folder: Path) -> None:
    try:
        said = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        said = None
    if not isinstance(said, dict):
        raise ModelFilesMissing(f"{folder / 'config.json'} cannot be read. Put the file of {model.upstream} there.")
    wanted = {
        "model_type": "bert",
        "hidden_size": model.dim,
        "num_hidden_layers": model.layers,
        "vocab_size": model.vocabulary,
    }
    for field, value in wanted.items():
        if said.get(field) != value:
            raise _other(model, folder, f"{field} is {said.get(field)!r} and not {value!r}")
    # Models of one shape differ in nothing else that is written down.
    name = said.get("_name_or_path")
    family = model.upstream.rsplit("/", 1)[-1].removesuffix("-en-v1.5").lower()
    if isinstance(name, str) and name and family not in name.lower():
        raise _other(model, folder, f"_name_or_path is {name!r}")


def _other(model: LocalModel, folder: Path, reason: str) -> ModelFilesMissing:
    return ModelFilesMissing(
        f"The files in {folder} are another model's than {model.upstream}: in config.json {reason}. Remove that "
        "folder, or put the model's own files there."
    )
