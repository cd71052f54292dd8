"""The table of prices is whole, and calls are priced by it."""

import tomllib
from datetime import date
from importlib.resources import files

import pytest
from structlog.testing import capture_logs

from loom_common.model_names import base_name, same_model
from loom_common.prices import DATA, Price, embedding_cost_usd, model_cost_usd, price_of, prices

ROWS = tomllib.loads(files("loom_common").joinpath(DATA).read_text("utf-8"))["price"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model"])
def test_every_row_has_its_figures_its_day_and_its_source(row: dict[str, object]) -> None:
    price = Price(**row)  # type: ignore[arg-type]  # the types are what is tested
    figures = (price.input, price.output, price.cache_read, price.cache_write, price.long_input, price.long_output)
    assert all(type(figure) is float and figure >= 0 for figure in figures)
    assert 0 <= price.cache_read <= 1 <= price.cache_write
    assert price.long_above is None or type(price.long_above) is int
    assert type(price.as_of) is date
    assert len(price.source) > 10


def test_no_model_is_listed_twice() -> None:
    names = [price.model for price in prices()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("gpt-6-luna", "gpt-6-luna"),
        ("gpt-6-luna-2026-09-22", "gpt-6-luna"),
        ("openai/gpt-6-luna", "gpt-6-luna"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("claude-opus-4-7", "claude-opus-4-[5-8]"),
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("fake-echo-1", "fake-*"),
    ],
)
def test_a_model_finds_its_row_under_every_name(model: str, row: str) -> None:
    found = price_of(model)
    assert found is not None
    assert found.model == row


def test_the_parts_of_a_prompt_are_priced_each_by_its_factor() -> None:
    cost = model_cost_usd("claude-haiku-4-5", 1000, 100, cached_tokens=600, cache_write_tokens=300)
    assert cost == pytest.approx((100 * 1.00 + 600 * 0.10 + 300 * 1.25 + 100 * 5.00) / 1e6)
    assert model_cost_usd("claude-haiku-4-5", 5, 0, cached_tokens=9) >= 0


def test_a_long_prompt_makes_the_whole_call_dearer() -> None:
    at, above = model_cost_usd("gpt-6-luna", 272_000, 1000), model_cost_usd("gpt-6-luna", 272_001, 1000)
    assert at == pytest.approx((272_000 * 0.10 + 1000 * 0.50) / 1e6)
    assert above == pytest.approx((272_001 * 0.20 + 1000 * 0.75) / 1e6)


def test_a_listed_embedder_costs_what_the_list_says_and_another_model_nothing_with_one_warning() -> None:
    assert embedding_cost_usd("text-embedding-3-small", 1_000_000) == pytest.approx(0.02)
    with capture_logs() as logs:
        assert model_cost_usd("a-model-of-this-test", 10, 10) == 0.0
        assert embedding_cost_usd("a-model-of-this-test", 10) == 0.0
    assert [line["event"] for line in logs] == ["model_unpriced"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("gpt-6-luna", "gpt-6-luna-2026-09-22", True),
        ("vendor/model-latest", "model-20260101", True),
        ("gpt-6-luna", "gpt-6-luna-mini", False),
        ("gpt-6", "gpt-6-luna", False),
    ],
)
def test_a_release_is_the_same_model_and_another_size_is_not(one: str, other: str, same: bool) -> None:
    assert same_model(one, other) is same
    assert base_name(base_name(one)) == base_name(one)
