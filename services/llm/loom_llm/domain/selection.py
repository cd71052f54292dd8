"""Which provider and model a process serves, decided once from settings and from which keys are there."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias

Provider: TypeAlias = Literal["openai", "anthropic", "fake"]

FAKE: Final = "fake"
OPENAI: Final = "openai"
ANTHROPIC: Final = "anthropic"

DEFAULT_MODELS: Final[dict[Provider, str]] = {OPENAI: "gpt-6-luna", ANTHROPIC: "claude-haiku-4-5", FAKE: "fake-echo-1"}
"""Model of each provider where none is asked for; the order is the one in which keys decide."""

KEY_VARIABLES: Final[dict[Provider, str]] = {OPENAI: "OPENAI_API_KEY", ANTHROPIC: "ANTHROPIC_API_KEY"}
"""Variable that holds each provider's key."""

_BY_NAME: Final[tuple[tuple[Provider, re.Pattern[str]], ...]] = (
    (ANTHROPIC, re.compile(r"claude")),
    (OPENAI, re.compile(r"gpt|o1|o3|o4|chatgpt")),
    (FAKE, re.compile(r"fake")),
)


class Source(StrEnum):
    """What decided the provider."""

    EXPLICIT = "explicit"
    MODEL = "model"
    KEY = "key"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Selection:
    """The provider and model to serve, and the one that was wanted where its key is missing."""

    provider: Provider
    model: str
    source: Source
    wanted_provider: Provider
    """Provider that was chosen; another than `provider` where its key is missing."""

    @property
    def key_missing(self) -> bool:
        """Whether the chosen provider has no key, so that the fake stands in."""
        return self.provider != self.wanted_provider

    @property
    def inferred(self) -> bool:
        """Whether nobody named the provider."""
        return self.source is not Source.EXPLICIT


def select(provider: Provider | None, model: str | None, keys: Collection[Provider]) -> Selection:
    """Returns what to serve: an explicit provider is never overridden, then the model's name decides, then a key.

    Args:
        provider: `LOOM_LLM_PROVIDER`, or None.
        model: `LOOM_LLM_MODEL`, or None.
        keys: Providers whose key is there.
    """
    wanted, source = _wanted(provider, model, keys)
    if wanted != FAKE and wanted not in keys:
        return Selection(FAKE, DEFAULT_MODELS[FAKE], source, wanted)
    # A name that is no fake's would make the fake look like a model.
    served = DEFAULT_MODELS[FAKE] if wanted == FAKE and not (model or "").startswith(FAKE) else model
    return Selection(wanted, served or DEFAULT_MODELS[wanted], source, wanted)


def provider_of(model: str) -> Provider | None:
    """Returns the provider that a model's name stands for, or None where it stands for none."""
    return next((provider for provider, pattern in _BY_NAME if pattern.match(model)), None)


def _wanted(provider: Provider | None, model: str | None, keys: Collection[Provider]) -> tuple[Provider, Source]:
    if provider is not None:
        return provider, Source.EXPLICIT
    if model is not None and (named := provider_of(model)) is not None:
        return named, Source.MODEL
    for candidate in DEFAULT_MODELS:
        if candidate in keys:
            return candidate, Source.KEY
    return FAKE, Source.DEFAULT
