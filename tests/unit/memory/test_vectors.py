import math

import pytest

from loom_memory.domain.vectors import leaning


def test_a_vector_leans_by_its_share_and_keeps_its_length() -> None:
    found = leaning([1.0, 0.0], [0.0, 1.0], 0.25)
    assert found == pytest.approx([0.75 / math.hypot(0.75, 0.25), 0.25 / math.hypot(0.75, 0.25)])
    assert leaning([1.0, 0.0], [0.0, 1.0], 0.0) == [1.0, 0.0]


def test_between_opposite_vectors_there_is_only_the_first() -> None:
    assert leaning([1.0, 0.0], [-1.0, 0.0], 0.5) == [1.0, 0.0]
