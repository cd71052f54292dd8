"""Updates for those who follow revocations, as messages."""

import pytest

from loom_common.auth.revocations import Revocation
from loom_gateway.identity.api.directory import update_to_proto
from loom_gateway.identity.app.revocations import Update


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, [0]), (1, [1]), (10_000, [10_000]), (10_001, [10_000, 1]), (20_000, [10_000, 10_000])]
)
def test_a_long_update_is_sent_in_parts_of_which_all_but_the_last_say_so(count: int, sizes: list[int]) -> None:
    revocations = tuple(Revocation("token", f"t{number}", 1.0, "acme") for number in range(count))
    parts = list(update_to_proto(Update(snapshot=True, jwks="keys", revocations=revocations)))
    assert [len(part.revocations) for part in parts] == sizes
    assert [part.more for part in parts] == [True] * (len(sizes) - 1) + [False]
    assert [part.snapshot for part in parts] == [True] + [False] * (len(sizes) - 1)
    assert [one.id for part in parts for one in part.revocations] == [one.id for one in revocations]


def test_switches_are_sent_in_parts_beside_revocations_with_their_age_in_the_first() -> None:
    off = tuple(f"org-{number}" for number in range(10_001))
    revocation = Revocation("token", "t", 1.0, "acme")
    update = Update(revocations=(revocation,), calls_off=off, calls_on=("acme",), calls_age_s=1.5)
    parts = list(update_to_proto(update))
    assert [len(part.model_calls_off) for part in parts] == [10_000, 1]
    assert [list(part.model_calls_on) for part in parts] == [["acme"], []]
    assert [part.more for part in parts] == [True, False]
    assert parts[0].model_calls_age_ms == 1500


def test_switches_that_were_never_read_have_no_age() -> None:
    [part] = update_to_proto(Update(snapshot=True))
    assert not part.HasField("model_calls_age_ms")
