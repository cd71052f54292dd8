import pytest

from loom_memory.domain.excerpts import Bodies, shown_value
from loom_memory.domain.memory import Content


@pytest.mark.parametrize(
    ("bodies", "kind", "length", "shown"),
    [
        (Bodies.EXCERPT, "note", 200, (200, False)),
        (Bodies.EXCERPT, "note", 201, (200, True)),
        (Bodies.EXCERPT, "decision", 500, (500, False)),
        (Bodies.EXCERPT, "constraint", 500, (500, False)),
        (Bodies.FULL, "note", 500, (500, False)),
        (Bodies.NONE, "decision", 5, (0, True)),
    ],
)
def test_a_text_is_shown_as_long_as_asked_for(bodies: Bodies, kind: str, length: int, shown: tuple[int, bool]) -> None:
    value, truncated = shown_value(Content("x" * length, kind=kind), bodies)
    assert (len(value), truncated) == shown
