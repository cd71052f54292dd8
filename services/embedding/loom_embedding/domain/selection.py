"""Which embedder a process serves, decided once from a few settings and from which keys are there."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from loom_embedding.domain.embedder import FAKE, GEMINI, LOCAL, OPENAI, REMOTE
from loom_embedding.domain.models import LOCAL_ALIASES, LOCAL_MODELS, MINILM
from loom_embedding.domain.remote_models import DEFAULT_REMOTE_MODELS, KEY_VARIABLES, REMOTE_MODELS
from loom_embedding.domain.views import is_label

DEFAULT_FAKE_DIM: Final = 384
"""Width of a fake where none is asked for. Source: as MiniLM's."""

# Source: chosen; below, texts of one language fall together, above, a vector is larger than any real model's.
_FAKE_WIDTHS: Final = range(8, 4097)

_FAKE_NAME: Final = re.compile(r"fake-ngram-([1-9][0-9]{0,4})")
_BY_NAME: Final = (
    (FAKE, re.compile(r"fake-ngram")),
    (LOCAL, re.compile(r"local(?::|$)")),
    (OPENAI, re.compile(r"text-embedding-")),
    (GEMINI, re.compile(r"gemini")),
)
_PROVIDERS: Final = tuple(name for name, _ in _BY_NAME)

SERVED_NAMES: Final = f"fake-ngram-<dim>, {', '.join((*LOCAL_MODELS, *REMOTE_MODELS))}"
"""What this build serves, for people."""


class UnknownModel(ValueError):
    """The settings ask for a model that this build does not serve; the text says what it serves."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The model to serve."""

    provider: str
    model: str
    dim: int
    asked_dim: int | None = None
    """Width that a remote model is asked for; None where it answers its own."""
    wanted_provider: str = ""
    """Provider that was chosen and has no key, so that the fake stands in; else empty."""
    wanted_model: str = ""
    """Model of that provider."""

    @property
    def key_missing(self) -> bool:
        """Whether the fake stands in for a model whose key is not set."""
        return bool(self.wanted_provider)

    @property
    def key_variables(self) -> str:
        """Variables of which one must be set for the model that was chosen, for people."""
        return " or ".join(KEY_VARIABLES[self.wanted_provider]) if self.key_missing else ""


def select(
    provider: str | None, model: str | None, dim: int | None = None, reachable: Collection[str] = ()
) -> Selection:
    """Returns the model to serve.

    A view over another model is never served. Otherwise an explicit provider decides, else the name of the model, else
    it is the local MiniLM.

    Args:
        provider: `LOOM_EMBEDDING_PROVIDER`, or None.
        model: `LOOM_EMBEDDING_MODEL`, or None.
        dim: `LOOM_EMBEDDING_DIM`, or None: the width of a fake whose name is not given, and the one that a remote model
            is asked for.
        reachable: Remote providers that can be called: their key is there, or a server that needs none is named.

    Raises:
        UnknownModel: Nothing that this build serves.
    """
    if model is not None and is_label(model):
        raise UnknownModel(f"LOOM_EMBEDDING_MODEL={model} is a view over another model and cannot be served itself.")
    wanted = provider if provider is not None else _inferred(model)
    if wanted == FAKE:
        return _fake(model if model is not None else f"fake-ngram-{dim or DEFAULT_FAKE_DIM}")
    if wanted == LOCAL:
        return _local(model)
    if wanted not in REMOTE:
        raise UnknownModel(f"LOOM_EMBEDDING_PROVIDER={wanted} is unknown. It may be {', '.join(_PROVIDERS)}.")
    remote = _remote(wanted, model, dim)
    if wanted in reachable:
        return remote
    stand_in = min(max(remote.dim, _FAKE_WIDTHS.start), _FAKE_WIDTHS.stop - 1)
    return Selection(FAKE, f"fake-ngram-{stand_in}", stand_in, None, wanted, remote.model)


def _inferred(model: str | None) -> str:
    if model is None:
        return LOCAL
    found = _named_provider(model)
    if found is None:
        raise UnknownModel(
            f"LOOM_EMBEDDING_MODEL={model}: unknown embedding model. This build serves {SERVED_NAMES}; for another one "
            "on a compatible server set LOOM_EMBEDDING_PROVIDER as well."
        )
    return found


def _named_provider(model: str) -> str | None:
    return next((name for name, pattern in _BY_NAME if pattern.match(model)), None)


def _fake(name: str) -> Selection:
    match = _FAKE_NAME.fullmatch(name)
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


def _remote(provider: str, model: str | None, dim: int | None) -> Selection:
    name = model if model is not None else DEFAULT_REMOTE_MODELS[provider]
    if _named_provider(name) in {FAKE, LOCAL}:
        # Its vectors would be stored under a name that stands for another model's.
        raise UnknownModel(f"LOOM_EMBEDDING_MODEL={name} is no model of {provider}.")
    known = REMOTE_MODELS.get(name)
    if known is None:
        if dim is None:
            raise UnknownModel(
                f"LOOM_EMBEDDING_DIM must be set to the width of {name}, which this build does not know."
            )
        return Selection(provider, name, dim, asked_dim=dim)
    if dim is None or dim == known.dim:
        return Selection(provider, name, known.dim, asked_dim=dim if known.takes_dim else None)
    if dim > known.dim or not known.takes_dim:
        raise UnknownModel(
            f"LOOM_EMBEDDING_DIM={dim} cannot be had of {name}: it is {known.dim} wide"
            f"{' at most' if known.takes_dim else ''}."
        )
    return Selection(provider, name, dim, asked_dim=dim)
