"""What providers charge: `prices.toml` beside this module, and how a call is priced by it."""

import functools
import tomllib
from dataclasses import dataclass, fields
from datetime import date
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Final

import structlog

from loom_common.model_names import base_name

DATA: Final = "prices.toml"

_PER: Final = 1_000_000
# Source: chosen. Names come from providers too, so that warnings and look-ups are bounded.
_MOST_NAMES: Final = 1024

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One row of the table. Units: US dollars per million tokens, and factors of these."""

    model: str
    """Name without release, or a pattern of the shell."""
    input: float
    output: float
    cache_read: float
    """Factor of `input` for tokens read from the provider's cache."""
    cache_write: float
    """Factor of `input` for tokens written to it."""
    as_of: date
    """Day on which the source said so."""
    source: str
    long_above: int | None = None
    """Tokens of a prompt above which the whole call costs more."""
    long_input: float = 1.0
    long_output: float = 1.0

    def cost_usd(self, input_tokens: int, output_tokens: int, cached_tokens: int, cache_write_tokens: int) -> float:
        """Returns what one call cost; see `model_cost_usd`."""
        plain = max(0, input_tokens - cached_tokens - cache_write_tokens)
        weighted = plain + cached_tokens * self.cache_read + cache_write_tokens * self.cache_write
        is_long = self.long_above is not None and input_tokens > self.long_above
        prompt = weighted * self.input * (self.long_input if is_long else 1.0)
        answer = output_tokens * self.output * (self.long_output if is_long else 1.0)
        return (prompt + answer) / _PER


def model_cost_usd(
    model: str, input_tokens: int, output_tokens: int = 0, *, cached_tokens: int = 0, cache_write_tokens: int = 0
) -> float:
    """Returns what one call cost; of a model that is not listed nothing, which is logged once.

    Args:
        model: Model that answered, with or without its release.
        input_tokens: Tokens of the prompt, the cached ones included.
        output_tokens: Tokens of the answer.
        cached_tokens: Those of the prompt that the provider read from its cache.
        cache_write_tokens: Those of the prompt that it wrote to its cache.
    """
    price = price_of(model)
    if price is None:
        return 0.0
    return price.cost_usd(input_tokens, output_tokens, cached_tokens, cache_write_tokens)


def embedding_cost_usd(model: str, tokens: int) -> float:
    """Returns what embedding `tokens` cost; of a model that is not listed nothing, which is logged once."""
    return model_cost_usd(model, tokens)


@functools.lru_cache(maxsize=_MOST_NAMES)
def price_of(model: str) -> Price | None:
    """Returns the row of a model: that of its exact name, else the first whose pattern it matches."""
    name = base_name(model)
    exact = [price for price in prices() if price.model == name]
    matching = [price for price in prices() if fnmatchcase(name, price.model)]
    found = next(iter(exact or matching), None)
    if found is None:
        # Once per name: the answer is kept.
        _log.warning("model_unpriced", model=model[:128])
    return found


@functools.cache
def prices() -> tuple[Price, ...]:
    """Returns the whole table, in the file's order.

    Raises:
        ValueError: A row is not one.
    """
    rows = tomllib.loads(files("loom_common").joinpath(DATA).read_text("utf-8"))["price"]
    return tuple(_checked(row) for row in rows)


def _checked(row: dict[str, object]) -> Price:
    known = {field.name for field in fields(Price)}
    if unknown := row.keys() - known:
        raise ValueError(f"{DATA}: {row.get('model')!r} has {sorted(unknown)}")
    # The types are the file's; a row that has others is found by the test that reads them all.
    return Price(**row)  # type: ignore[arg-type]
