"""What a call spent on models, counted as it runs and handed back to its caller in trailing metadata."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final, Self

USAGE_KEY: Final = "loom-usage-bin"

_MAX_BYTES: Final = 4096
_MAX_MODEL_CHARS: Final = 128
# Source: chosen. Far above what one call can spend, far below where sums lose precision.
_MAX_COUNT: Final = 10**12
_MAX_USD: Final = 10.0**6


@dataclass(slots=True)
class Usage:
    """Counts of one call. Truthy once anything was spent."""

    embedding_tokens: int = 0
    """Tokens that were embedded."""
    input_tokens: int = 0
    """Tokens of prompts, those read from a provider's cache included."""
    output_tokens: int = 0
    """Tokens of answers."""
    cached_tokens: int = 0
    """Tokens of prompts that the provider read from its cache."""
    llm_calls: int = 0
    """Calls to a model that completes text."""
    upstream_cost_usd: float = 0.0
    """What the providers charged. Units: US dollars."""
    llm_cache_saved_usd: float = 0.0
    """What Loom's own cache of answers saved. Units: US dollars."""
    model: str = ""
    """Model that spent most; empty when none did."""
    model_cost_usd: float = 0.0
    """What `model` alone cost. Units: US dollars. Decides which model stays named when usages are merged."""
    model_tokens: int = 0
    """Tokens of `model` alone. Decides between models of equal cost, such as free ones."""

    def __bool__(self) -> bool:
        return self != _NOTHING

    def merge(self, other: "Usage") -> None:
        """Adds what another call spent; the model that cost more stays named, of equal ones that with more tokens."""
        if other.model and (
            not self.model or (other.model_cost_usd, other.model_tokens) > (self.model_cost_usd, self.model_tokens)
        ):
            named = other
        else:
            named = self
        model, cost, tokens = named.model, named.model_cost_usd, named.model_tokens
        if self.model and self.model == other.model:
            cost = self.model_cost_usd + other.model_cost_usd
            tokens = self.model_tokens + other.model_tokens
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.model, self.model_cost_usd, self.model_tokens = model, cost, tokens

    def to_bytes(self) -> bytes:
        """Returns the value of the metadata `loom-usage-bin`: JSON, zero values left out."""
        held = {field.name: value for field in fields(self) if (value := getattr(self, field.name))}
        return json.dumps(held, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Returns what `to_bytes` wrote.

        Keys of a newer peer are passed over.

        Raises:
            ValueError: The bytes are not a usage.
        """
        if len(data) > _MAX_BYTES:
            raise ValueError("the usage is too long")
        try:
            held = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ValueError("the usage is not JSON") from error
        if not isinstance(held, dict):
            raise ValueError("the usage is not an object")
        usage = cls()
        for name in (*_SUMMED, "model_cost_usd", "model_tokens"):
            if name in held:
                setattr(usage, name, _amount(name, held[name]))
        model = held.get("model", "")
        if not isinstance(model, str):
            raise ValueError("the usage's model is not text")
        usage.model = model[:_MAX_MODEL_CHARS]
        return usage


_NOTHING: Final = Usage()

_SUMMED: Final = (
    "embedding_tokens",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "llm_calls",
    "upstream_cost_usd",
    "llm_cache_saved_usd",
)


def usage_from_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> Usage | None:
    """Returns the usage that a peer sent, or None where it sent none or one that cannot be read.

    Bytes that cannot be read are passed over: the answer beside them is good.
    """
    for key, value in metadata:
        if key == USAGE_KEY and isinstance(value, bytes):
            try:
                return Usage.from_bytes(value)
            except ValueError:
                return None
    return None


def _amount(name: str, value: object) -> int | float:
    if name.endswith("_usd"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{name} is not a number")
        if not 0 <= value <= _MAX_USD:  # false for NaN too
            raise ValueError(f"{name} is out of range")
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is not a whole number")
    if not 0 <= value <= _MAX_COUNT:
        raise ValueError(f"{name} is out of range")
    return value
