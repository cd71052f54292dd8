import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_common.attribution import ATTRIBUTION_KEY, Attribution, Kind, attribution_from_metadata

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=40)


@given(
    st.builds(
        Attribution,
        org=TEXT.filter(bool),
        namespace=TEXT,
        subject=TEXT,
        user_id=TEXT,
        feature=TEXT,
        kind=st.sampled_from(Kind),
        read_only=st.booleans(),
        run_id=TEXT,
    )
)
def test_an_attribution_survives_the_wire(attribution):
    assert Attribution.from_bytes(attribution.to_bytes()) == attribution


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[" * 4000,
        b"\xff",
        b'{"org": "a"}',
        b'{"org": "a", "kind": "boss"}',
        b'{"kind": "request"}',
        b'{"org": 3, "kind": "request"}',
        b'{"org": "a\\u0000b", "kind": "request"}',
        b'{"org": "a", "namespace": "\\ud800", "kind": "request"}',
        b'{"org": "a", "kind": "request", "read_only": "no"}',
        b'{"kind": "system", "namespace": "' + b"x" * 300 + b'"}',
        b'{"org": "a", "kind": "job", "x": "' + b"y" * 5000 + b'"}',
    ],
)
def test_hostile_bytes_are_refused(data):
    with pytest.raises(ValueError):
        attribution_from_metadata([(ATTRIBUTION_KEY, data)])


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_value_error(data):
    with contextlib.suppress(ValueError):
        Attribution.from_bytes(data)


def test_only_the_deployments_own_calls_may_name_no_organisation():
    system = Attribution(org="", kind=Kind.SYSTEM, feature="system.embedder_probe")
    assert Attribution.from_bytes(system.to_bytes()) == system


def test_metadata_without_attribution_has_none():
    assert attribution_from_metadata([("x", "y")]) is None
