"""Fetches a local model that no package carries, where there is a network. Never called by the service."""

import tempfile
from pathlib import Path

from loom_embedding.domain.models import LocalModel
from loom_embedding.providers.model_files import ModelFilesMissing, is_complete, publish_files


def download_model(model: LocalModel, models_dir: Path) -> Path:
    """Returns the folder with the model's files, fetching them through fastembed where they are missing.

    Raises:
        ModelFilesMissing: They could not be fetched, or the directory cannot be written to.
    """
    target = models_dir / model.folder
    if is_complete(model, target):
        return target
    from fastembed import TextEmbedding  # it takes two seconds, and only this path needs it
    from fastembed.text.onnx_embedding import OnnxTextEmbedding

    with tempfile.TemporaryDirectory(prefix="loom-models-") as cache:
        try:
            fetched = TextEmbedding(model.upstream, cache_dir=cache, lazy_load=True).model
            if not isinstance(fetched, OnnxTextEmbedding):
                raise TypeError("no ONNX model")
            folder = Path(fetched._model_dir)  # fastembed names it nowhere else
            weights = folder / fetched.model_description.model_file
            rest = [path for path in folder.iterdir() if path.suffix == ".json"]
            publish_files([("model.onnx", weights), *((path.name, path) for path in rest)], models_dir, model.folder)
        except Exception as error:
            raise ModelFilesMissing(
                f"The files of {model.id} could not be fetched ({type(error).__name__}). Try again where there is a "
                f"network, or put them into {target}."
            ) from error
    if not is_complete(model, target):
        raise ModelFilesMissing(f"The files of {model.id} that were fetched are not complete. Put them into {target}.")
    return target
