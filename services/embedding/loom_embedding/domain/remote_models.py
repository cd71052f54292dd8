"""The remote models that this build knows, as data, and what it takes for granted of any other."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from loom_embedding.domain.embedder import GEMINI, OPENAI


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """One model of a provider."""

    id: str
    """Name as the provider knows it and as stored beside each vector."""
    provider: str
    dim: int
    """Width that it answers where none is asked for, and the widest that it can."""
    takes_dim: bool
    """Whether it can be asked for another width."""
    noise_floor: float
    """Cosine at or under which two texts are unrelated."""


# Source of the widths: the providers' documentation. Source of the floors: chosen from published similarities and not
# measured here; the calibration of thresholds measures what is really served.
_MODELS: Final = (
    RemoteModel("text-embedding-3-small", OPENAI, 1536, takes_dim=True, noise_floor=0.30),
    RemoteModel("text-embedding-3-large", OPENAI, 3072, takes_dim=True, noise_floor=0.30),
    RemoteModel("text-embedding-ada-002", OPENAI, 1536, takes_dim=False, noise_floor=0.75),
    RemoteModel("gemini-embedding-001", GEMINI, 3072, takes_dim=True, noise_floor=0.60),
)

REMOTE_MODELS: Final[Mapping[str, RemoteModel]] = MappingProxyType({model.id: model for model in _MODELS})
"""Each known model by its name."""

DEFAULT_REMOTE_MODELS: Final[Mapping[str, str]] = MappingProxyType(
    {OPENAI: "text-embedding-3-small", GEMINI: "gemini-embedding-001"}
)
"""Model of each provider where none is asked for."""

WINDOW_TOKENS: Final[Mapping[str, int]] = MappingProxyType({OPENAI: 8191, GEMINI: 2048})
"""Most tokens of one input, by provider. Source: the providers' documentation."""

KEY_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {OPENAI: ("OPENAI_API_KEY",), GEMINI: ("GEMINI_API_KEY", "GOOGLE_API_KEY")}
)
"""Variables that hold each provider's key; the first that is set counts."""

# Source: chosen, as for text-embedding-3-small.
UNKNOWN_NOISE_FLOOR: Final = 0.30
"""Noise floor of a model that is not in the table."""
