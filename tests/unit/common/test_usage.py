import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.usage import USAGE_KEY, Usage, usage_from_metadata

COUNTS = st.integers(0, 10**9)
DOLLARS = st.floats(0, 1000)
USAGES = st.builds(
    Usage,
    embedding_tokens=COUNTS,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cached_tokens=COUNTS,
    llm_calls=COUNTS,
    upstream_cost_usd=DOLLARS,
    llm_cache_saved_usd=DOLLARS,
    model=st.sampled_from(["", "a", "b"]),
    model_cost_usd=DOLLARS,
    model_tokens=COUNTS,
)


@given(USAGES)
def test_a_usage_survives_the_wire(usage):
    assert Usage.from_bytes(usage.to_bytes()) == usage


@given(st.lists(USAGES, max_size=5))
def test_merged_counts_are_the_sums_whatever_the_order(usages):
    forward, backward = Usage(), Usage()
    for usage in usages:
        forward.merge(usage)
    for usage in reversed(usages):
        backward.merge(usage)
    for name in ("embedding_tokens", "input_tokens", "output_tokens", "cached_tokens", "llm_calls"):
        assert getattr(forward, name) == getattr(backward, name) == sum(getattr(usage, name) for usage in usages)
    assert forward.upstream_cost_usd == pytest.approx(sum(usage.upstream_cost_usd for usage in usages))


def test_the_model_that_cost_more_stays_named():
    usage = Usage(model="cheap", model_cost_usd=0.01, upstream_cost_usd=0.01)
    usage.merge(Usage(model="dear", model_cost_usd=0.5, upstream_cost_usd=0.5))
    usage.merge(Usage(model="cheap", model_cost_usd=0.02, upstream_cost_usd=0.02))
    assert usage.model == "dear"
    assert usage.upstream_cost_usd == pytest.approx(0.53)


def test_costs_of_the_same_model_are_counted_together():
    usage = Usage(model="a", model_cost_usd=0.3)
    usage.merge(Usage(model="a", model_cost_usd=0.3))
    usage.merge(Usage(model="b", model_cost_usd=0.5))
    assert (usage.model, usage.model_cost_usd) == ("a", pytest.approx(0.6))


def test_a_usage_is_true_once_anything_was_spent():
    assert not Usage()
    assert Usage(llm_calls=1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"[" * 4000,
        b'{"input_tokens": -1}',
        b'{"input_tokens": true}',
        b'{"input_tokens": 1.5}',
        b'{"input_tokens": 1e400}',
        b'{"upstream_cost_usd": NaN}',
        b'{"upstream_cost_usd": Infinity}',
        b'{"upstream_cost_usd": "1"}',
        b'{"upstream_cost_usd": ' + b"9" * 400 + b"}",
        b'{"model": 3}',
        b'{"x": "' + b"y" * 5000 + b'"}',
    ],
)
def test_hostile_bytes_are_refused_and_passed_over_in_metadata(data):
    with pytest.raises(ValueError):
        Usage.from_bytes(data)
    assert usage_from_metadata([(USAGE_KEY, data)]) is None


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_value_error(data):
    with contextlib.suppress(ValueError):
        Usage.from_bytes(data)


def test_keys_of_a_newer_peer_are_passed_over_and_metadata_without_usage_has_none():
    assert Usage.from_bytes(json.dumps({"llm_calls": 2, "new": {}}).encode()) == Usage(llm_calls=2)
    assert usage_from_metadata([("other", b"x"), (USAGE_KEY, "text")]) is None
