"""Patterns that others wrote, one by one and many at once."""

import random

from loom_common.safe_patterns import SafePattern, SafePatternSet


def test_a_set_finds_what_its_patterns_find_one_by_one_in_any_text() -> None:
    patterns = [
        SafePattern(r"\b\d{3}-\d{2}-\d{4}\b"),
        SafePattern(r"key\s*=\s*['\"]\w+", ignore_case=True),
        SafePattern(r"[\pL\pN._%+\-]+@(?:[\pL\pN\-]+\.)+\pL{2,24}"),
        SafePattern(r"(a|b)*c"),
    ]
    together = SafePatternSet(patterns)
    draw = random.Random(5)
    texts = ["".join(draw.choices("abcXYZ019 .-_@=:/'\"éß日", k=draw.randint(0, 300))) for _ in range(300)]
    texts += ["KEY = 'x' 123-45-6789 ä@b.de " * 2_000, "", "a" * 65_536]
    for text in texts:
        assert together.matching(text) == [place for place, one in enumerate(patterns) if one.is_in(text)]
