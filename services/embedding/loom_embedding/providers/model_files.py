"""Lays a local model's files out in one folder, from installed distributions, and checks every digest.

The distributions are located and read as files. They are never imported: one of them loads a whole model on import.
"""

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Final

from loom_embedding.domain.models import REQUIRED_FILES, LocalModel, ModelFile

_BLOCK_BYTES: Final = 1 << 20


class ModelFilesMissing(Exception):
    """A local model's files are not there or are not what they must be; the text says what to do."""


def shared_models_dir() -> Path:
    """Returns the directory of models inside this Python environment, filled at set-up and shared by its processes."""
    return Path(sys.prefix) / "share" / "loom" / "models"


def ensure_model(model: LocalModel, models_dir: Path, shared_dir: Path | None = None) -> Path:
    """Returns the folder with the model's checked files, laying them out where they are missing or damaged.

    Args:
        model: The model.
        models_dir: Directory of models that this process may write to.
        shared_dir: Directory of models that is only looked into; None to look into no other.

    Raises:
        ModelFilesMissing: Neither directory has them and no installed distribution carries them.
    """
    for directory in (models_dir, shared_dir):
        if directory is not None and is_complete(model, directory / model.folder):
            return directory / model.folder
    if not model.packaged:
        raise ModelFilesMissing(_how_to_get(model, models_dir))
    return lay_out(model, models_dir)


def is_complete(model: LocalModel, folder: Path) -> bool:
    """Returns whether `folder` holds every file of the model, each with the digest that it must have."""
    if not model.files:
        return all((folder / name).is_file() for name in REQUIRED_FILES)
    return all(_has_digest(folder / file.name, file.sha256) for file in model.files)


def lay_out(model: LocalModel, models_dir: Path) -> Path:
    """Copies the model's files out of the installed distributions; the folder appears whole or not at all.

    Raises:
        ModelFilesMissing: A distribution is absent, carries another file, or the directory cannot be written to.
    """
    target = models_dir / model.folder
    sources = [(file, _located(model, file)) for file in model.files]
    try:
        with _alone(models_dir):
            if is_complete(model, target):
                return target  # another process was faster
            with _staging(models_dir, model.folder) as staged:
                for file, source in sources:
                    _copy_checked(source, staged / file.name, file, model)
                _publish(staged, target)
    except OSError as error:
        raise ModelFilesMissing(
            f"The files of {model.id} could not be written into {models_dir}: {error.strerror or type(error).__name__}."
            " Set LOOM_EMBEDDING_MODEL_DIR to a directory that can be written to."
        ) from error
    if not is_complete(model, target):
        raise ModelFilesMissing(f"The files of {model.id} in {target} are not what they must be. Remove that folder.")
    return target


def publish_files(files: Sequence[tuple[str, Path]], models_dir: Path, folder: str) -> Path:
    """Copies named files into `models_dir`/`folder`, which appears whole or not at all."""
    with _alone(models_dir), _staging(models_dir, folder) as staged:
        for name, source in files:
            shutil.copyfile(source, staged / name)
        _publish(staged, models_dir / folder)
    return models_dir / folder


def _how_to_get(model: LocalModel, models_dir: Path) -> str:
    return (
        f"The files of {model.id} are not here and no installed package carries them. Put {', '.join(REQUIRED_FILES)} "
        f"into {models_dir / model.folder} (LOOM_EMBEDDING_MODEL_DIR names its parent), use an image that was built "
        f"with them, or run `python -m loom_embedding.setup_models --download {model.id}` where there is a network. "
        "local:minilm needs none of this."
    )


def _located(model: LocalModel, file: ModelFile) -> Path:
    try:
        path = Path(str(metadata.distribution(file.package).locate_file(file.member)))
    except metadata.PackageNotFoundError:
        raise ModelFilesMissing(
            f"{model.id} needs the package {file.package}. Install it, or set LOOM_EMBEDDING_MODEL_DIR."
        ) from None
    if not path.is_file():
        raise ModelFilesMissing(f"The package {file.package} carries no {file.name}. Install it again.")
    return path


@contextmanager
def _alone(models_dir: Path) -> Iterator[None]:
    """Makes the directory and keeps other processes that write to it waiting."""
    models_dir.mkdir(parents=True, exist_ok=True)
    with (models_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _staging(models_dir: Path, folder: str) -> Iterator[Path]:
    staged = Path(tempfile.mkdtemp(prefix=f".{folder}.", dir=models_dir))
    try:
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _copy_checked(source: Path, target: Path, file: ModelFile, model: LocalModel) -> None:
    digest = hashlib.sha256()
    with source.open("rb") as read, target.open("wb") as written:
        while block := read.read(_BLOCK_BYTES):
            digest.update(block)
            written.write(block)
        written.flush()
        os.fsync(written.fileno())
    if digest.hexdigest() != file.sha256:
        raise ModelFilesMissing(
            f"{file.name} of {model.id} in the package {file.package} has another sha256 than it must have. "
            "Install the version that Loom's lock file names."
        )


def _publish(staged: Path, target: Path) -> None:
    """Moves a staged folder into place; one that is damaged goes first, since it cannot be replaced in one step."""
    staged.chmod(0o755)
    if target.exists():
        aside = Path(tempfile.mkdtemp(prefix=f"{staged.name}.old.", dir=staged.parent))
        try:
            target.rename(aside / target.name)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    staged.rename(target)


def _has_digest(path: Path, sha256: str) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False
