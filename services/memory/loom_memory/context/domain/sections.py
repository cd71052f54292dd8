"""The sections of a pack: their order, which of them do not depend on the question, and their shares of the budget."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from loom_memory.domain.recipes import Recipe


class Section(StrEnum):
    """One section of a pack, in the order in which they stand."""

    WORKING_MEMORY = "working_memory"
    PROFILE = "profile"
    NAMESPACE_HEALTH = "namespace_health"
    NAMESPACE_GUIDE = "namespace_guide"
    MENTOR = "mentor"
    MEMORY_STACK = "memory_stack"
    MEMORIES = "memories"
    PROCEDURES = "procedures"
    DECISIONS = "decisions"
    KNOWLEDGE = "knowledge"
    CONVERSATIONS = "conversations"
    RUNS = "runs"


class Mode(StrEnum):
    """What the agent is about to do."""

    STARTUP = "startup"
    TASK = "task"
    DEBUG = "debug"
    HANDOFF = "handoff"


STABLE: Final = (
    Section.WORKING_MEMORY,
    Section.PROFILE,
    Section.NAMESPACE_HEALTH,
    Section.NAMESPACE_GUIDE,
    Section.MENTOR,
    Section.MEMORY_STACK,
)
"""Sections that no question changes; they come first."""

VOLATILE: Final = tuple(section for section in Section if section not in STABLE)

OPT_IN: Final = frozenset({Section.KNOWLEDGE, Section.CONVERSATIONS, Section.RUNS})
"""Sections that have to be asked for, by their flag or by their name."""

RECIPES: Final[Mapping[Mode, Recipe]] = MappingProxyType(
    {
        Mode.STARTUP: Recipe.FAST,
        Mode.TASK: Recipe.BALANCED,
        Mode.DEBUG: Recipe.QUALITY,
        Mode.HANDOFF: Recipe.BALANCED,
    }
)
"""How memories are searched, but for what a language model would add."""


def _shares(*percent: int) -> Mapping[Section, float]:
    return MappingProxyType({section: share / 100 for section, share in zip(Section, percent, strict=True)})


# Source: chosen. What holds for the whole session leads at its start and when it is handed on; what answers the
# question leads within a task; a fault is found by what happened before: memories, conversations, runs.
# In order: working memory, profile, health, guide, mentor, stack; memories, procedures, decisions, knowledge,
# conversations, runs. The shares of the stable sections are of the whole budget, the others' of what is left then.
_SHARES: Final[Mapping[Mode, Mapping[Section, float]]] = MappingProxyType(
    {
        Mode.STARTUP: _shares(12, 14, 3, 14, 5, 16, 36, 12, 20, 16, 10, 6),
        Mode.TASK: _shares(10, 9, 2, 10, 3, 10, 40, 12, 18, 16, 10, 4),
        Mode.DEBUG: _shares(10, 4, 2, 8, 3, 8, 38, 14, 12, 14, 14, 8),
        Mode.HANDOFF: _shares(20, 9, 3, 10, 4, 12, 28, 8, 22, 8, 20, 14),
    }
)


def wanted_sections(
    only: Collection[Section], included: Collection[Section], *, decisions: bool
) -> tuple[Section, ...]:
    """Returns the sections to pack, in order.

    Args:
        only: Sections that alone are wanted; empty for every one. Naming one that has to be asked for asks for it.
        included: Sections that are asked for beside those that always are.
        decisions: Whether decisions have a section of their own.
    """
    return tuple(
        section
        for section in Section
        if (section in only if only else section not in OPT_IN or section in included)
        and (decisions or section is not Section.DECISIONS)
    )


def stable_allotments(
    wanted: Collection[Section], only: Collection[Section], mode: Mode, budget: int
) -> dict[Section, int]:
    """Returns the tokens that each stable section may take.

    They depend on the mode, the budget and `only`, and on nothing else: neither on the question nor on which other
    sections are asked for. Where only some sections are wanted, they share what the others would have taken.
    """
    shares = _SHARES[mode]
    stable = [section for section in STABLE if section in wanted]
    if not only:
        return {section: int(budget * shares[section]) for section in stable}
    volatile = 1 - sum(shares[section] for section in STABLE) if any(section in VOLATILE for section in only) else 0.0
    whole = sum(shares[section] for section in stable) + volatile
    return {section: int(budget * shares[section] / whole) for section in stable}


def volatile_allotments(wanted: Collection[Section], mode: Mode, left: int) -> dict[Section, int]:
    """Returns the tokens that each other section may take of what the stable ones left."""
    shares = _SHARES[mode]
    volatile = [section for section in VOLATILE if section in wanted]
    whole = sum(shares[section] for section in volatile)
    return {section: int(max(left, 0) * shares[section] / whole) for section in volatile}
