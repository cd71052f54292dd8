"""Which embedder a process serves, decided once from two settings."""

import re
from dataclasses import dataclass
from typing import Final

from loom_embedding.domain.embedder import FAKE, LOCAL
from loom_embedding.domain.models import LOCAL_ALIASES, LOCAL_MODELS, MINILM

DEFAULT_FAKE_DIM: Final = 384
"""Width of a fake where none is asked for. Source: as MiniLM's."""

# Source: chosen; below, texts of one language fall together, above, a vector is larger than any real model's.
_FAKE_WIDTHS: Final = range(8, 4097)

_VIEW: Final = re.compile(r"^(prefix:\d+:|ctx\[[^\]]*\]:)")
_FAKE_NAME: Final = re.compile(r"^fake-ngram-(\d{1,5})$")
_REMOTE: Final = (("openai", re.compile(r"^text-embedding-")), ("gemini", re.compile(r"^gemini")))

SERVED_NAMES: Final = f"fake-ngram-<dim>, {', '.join(LOCAL_MODELS)}"
"""What this build serves, for people."""


class UnknownModel(ValueError):
    """The settings ask for a model that this build does not serve; the text says what it serves."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The model to serve."""

    provider: str
    model: str
    dim: int


def select(provider: str | None, model: str | None, dim: int | None = None) -> Selection:
    """Returns the model to serve.

    A view over another model is never served. Otherwise an explicit provider decides, else the name of the model, else
    it is the local MiniLM.

    Args:
        provider: `LOOM_EMBEDDING_PROVIDER`, or None.
        model: `LOOM_EMBEDDING_MODEL`, or None.
        dim: `LOOM_EMBEDDING_DIM`, or None; the width of a fake whose name is not given.

    Raises:
        UnknownModel: Nothing that this build serves.
    """
    if model is not None and _VIEW.match(model):
        raise UnknownModel(f"LOOM_EMBEDDING_MODEL={model} is a view over another model and cannot be served itself.")
    wanted = provider if provider is not None else _inferred(model)
    if wanted == FAKE:
        return _fake(model if model is not None else f"fake-ngram-{dim or DEFAULT_FAKE_DIM}")
    if wanted == LOCAL:
        return _local(model)
    if wanted in {name for name, _ in _REMOTE}:
        raise UnknownModel(f"The embedding provider {wanted} is not part of this build, which serves {SERVED_NAMES}.")
    raise UnknownModel(f"LOOM_EMBEDDING_PROVIDER={wanted} is unknown. This build serves: fake, local.")


def _inferred(model: str | None) -> str:
    if model is None or model in LOCAL_ALIASES or model.startswith("local:"):
        return LOCAL
    if model.startswith("fake-ngram"):
        return FAKE
    for name, pattern in _REMOTE:
        if pattern.match(model):
            return name
    raise UnknownModel(f"LOOM_EMBEDDING_MODEL={model}: unknown embedding model. This build serves {SERVED_NAMES}.")


def _fake(name: str) -> Selection:
    match = _FAKE_NAME.match(name)
    if match is None or int(match[1]) not in _FAKE_WIDTHS:
        raise UnknownModel(
            f"LOOM_EMBEDDING_MODEL={name} is no fake model: fake-ngram-<dim>, "
            f"dim {_FAKE_WIDTHS.start} to {_FAKE_WIDTHS.stop - 1}."
        )
    return Selection(FAKE, name, int(match[1]))


def _local(model: str | None) -> Selection:
    name = MINILM if model is None else LOCAL_ALIASES.get(model, model)
    found = LOCAL_MODELS.get(name)
    if found is None:
        raise UnknownModel(f"LOOM_EMBEDDING_MODEL={name} is no local model. This build has {', '.join(LOCAL_MODELS)}.")
    return Selection(LOCAL, found.id, found.dim)
