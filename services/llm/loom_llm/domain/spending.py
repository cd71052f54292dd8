"""What was spent on answers that nobody gets: the provider bills them, and no result tells of them.

Such is an answer that was all hidden reasoning, where what was asked for in its place failed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from loom_llm.domain.messages import LLMResult

Wasted: TypeAlias = list[LLMResult]
"""Answers that were paid for in vain, in order."""

_WASTED: ContextVar[Wasted | None] = ContextVar("loom_llm_wasted", default=None)


@contextmanager
def collecting() -> Iterator[Wasted]:
    """Collects what is spent in vain in the block, and in tasks that begin in it."""
    wasted: Wasted = []
    token = _WASTED.set(wasted)
    try:
        yield wasted
    finally:
        _WASTED.reset(token)


def wasted_here() -> Wasted:
    """Returns where to put what is spent in vain. It stays the right place after the block was left."""
    found = _WASTED.get()
    return found if found is not None else []
