"""Who can hold something: people, programs, and agents of a trust."""

import re
from enum import StrEnum
from typing import Final

from loom_common.errors import InvalidArgument
from loom_common.model_calls.identity import agent_of, is_person

_AGENT_PREFIX: Final = "sa:"
EVERY_AGENT: Final = "*"
"""Stands, as the agent of a trust, for each of them."""

# A trust's name stands before the first colon of a subject, so it holds none.
_TRUST_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_CHARS: Final = 240


class SubjectKind(StrEnum):
    """What a subject is."""

    PERSON = "person"
    SERVICE_ACCOUNT = "service_account"
    AGENT = "agent"


def subject_kind(subject: str) -> SubjectKind | None:
    """Returns what a subject is, or None for what is none."""
    # What is seen is what is meant: nothing that moves a terminal's cursor, turns a line around or shows nothing.
    if not 0 < len(subject) <= _MAX_CHARS or not subject.isprintable() or " " in subject:
        return None
    if agent_of(subject):
        return SubjectKind.AGENT
    if subject.startswith(_AGENT_PREFIX):
        name = subject.removeprefix(_AGENT_PREFIX)
        return SubjectKind.SERVICE_ACCOUNT if name and ":" not in name and name != EVERY_AGENT else None
    return SubjectKind.PERSON if is_person(subject) else None


def agent_subject(trust: str, agent: str) -> str:
    """Returns the subject of an agent."""
    return f"{_AGENT_PREFIX}{trust}:{agent}"


def every_agent_of(subject: str) -> str:
    """Returns the subject that stands for every agent of an agent's trust; empty for one that is no agent."""
    found = agent_of(subject)
    return agent_subject(found[0], EVERY_AGENT) if found else ""


def is_every_agent(subject: str) -> bool:
    """Returns whether a subject stands for every agent of a trust."""
    found = agent_of(subject)
    return found is not None and found[1] == EVERY_AGENT


def check_trust_name(field: str, name: str) -> None:
    """Returns if a trust may be made under `name`.

    Raises:
        InvalidArgument: The name breaks the rule.
    """
    if not _TRUST_NAME.fullmatch(name):
        raise InvalidArgument.of(field, "is 1 to 64 letters, digits and . _ -, and begins with a letter or a digit")


def check_subject(field: str, subject: str, *, every_agent: bool = False) -> SubjectKind:
    """Returns what a subject is.

    Args:
        field: Field that names it.
        subject: The subject.
        every_agent: Whether it may stand for every agent of a trust.

    Raises:
        InvalidArgument: It is none.
    """
    kind = subject_kind(subject)
    if kind is None or (is_every_agent(subject) and not every_agent):
        raise InvalidArgument.of(field, "is an e-mail address, `sa:<name>` or `sa:<trust>:<agent>`")
    return kind
