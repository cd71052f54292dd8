"""Which answers of an inference gateway refuse whom a call is for, and which ask that one to wait.

A refusal of one identity and a failure of the gateway may share a status, and a word in a message is no contract: only
the answers listed here, each matched exactly, are about the identity. All others are the provider's.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_FIELDS: Final = ("code", "type", "message")


@dataclass(frozen=True, slots=True)
class RefusalRule:
    """One answer: its status and at least one field of its body's `error`; None passes anything."""

    status: int
    code: str | None = None
    type: str | None = None
    message: str | None = None

    def matches(self, status: int, error: "AnswerError") -> bool:
        """Returns whether an answer is the one that is meant."""
        return status == self.status and all(
            wanted is None or wanted == found
            for wanted, found in (
                (self.code, error.code),
                (self.type, error.type),
                (self.message, error.message),
            )
        )


@dataclass(frozen=True, slots=True)
class AnswerError:
    """What the body of an answer says under `error`; None where it does not say it as text."""

    code: str | None = None
    type: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class RefusalTable:
    """The answers that are about the identity."""

    refused: tuple[RefusalRule, ...]
    """The identity may not make the call."""
    wait: tuple[RefusalRule, ...]
    """The identity makes too many calls."""

    @property
    def statuses(self) -> frozenset[int]:
        """Statuses whose bodies have to be read."""
        return frozenset(rule.status for rule in (*self.refused, *self.wait))


# Statuses that a gateway may answer for an identity. Source: chosen; the code is what tells, and the statuses are those
# that HTTP has for it: payment required, forbidden, too many requests; bad request for what was sent incompletely.
_BUDGET: Final = (402, 403, 429)
_MALFORMED: Final = (400, 401, 403, 422)

DEFAULT_REFUSALS: Final = RefusalTable(
    refused=(
        *(RefusalRule(status, code="budget_exceeded") for status in _BUDGET),
        RefusalRule(403, code="agent_denied"),
        *(RefusalRule(status, code="identity_incomplete") for status in _MALFORMED),
        *(RefusalRule(status, code="identity_malformed") for status in _MALFORMED),
    ),
    wait=(RefusalRule(429, code="agent_request_limit"), RefusalRule(503, code="agent_request_limit")),
)
"""Holds where `LOOM_INFERENCE_IDENTITY_REFUSALS_JSON` is not set. `token_unavailable` and `identity_missing`, which a
gateway also answers for its own failure, are left out on purpose."""


def answer_error(body: bytes) -> AnswerError:
    """Returns what a body says under `error`; of a body of another shape, nothing."""
    try:
        held = json.loads(body)
    except (ValueError, RecursionError):
        return AnswerError()
    error = held.get("error") if isinstance(held, dict) else None
    if not isinstance(error, dict):
        return AnswerError()
    found = [error.get(field) for field in _FIELDS]
    code, kind, message = (value if isinstance(value, str) else None for value in found)
    return AnswerError(code, kind, message)


def parse_refusals(text: str) -> RefusalTable:
    """Returns the table that a JSON object of `refused` and `wait` stands for; of empty text the default.

    Raises:
        ValueError: It is not such an object.
    """
    if not text:
        return DEFAULT_REFUSALS
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(held, dict) or not set(held) <= {"refused", "wait"}:
        raise ValueError("it is not a JSON object of refused and wait")
    return RefusalTable(_rules(held.get("refused", [])), _rules(held.get("wait", [])))


def _rules(entries: object) -> tuple[RefusalRule, ...]:
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise ValueError("refused and wait are lists")
    return tuple(_rule(entry) for entry in entries)


def _rule(entry: object) -> RefusalRule:
    if not isinstance(entry, dict) or not set(entry) <= {"status", *_FIELDS}:
        raise ValueError("an entry has status, code, type and message, and nothing else")
    status = entry.get("status")
    if not isinstance(status, int) or isinstance(status, bool) or not 400 <= status <= 599:
        raise ValueError("the status of an entry is a number from 400 to 599")
    fields = {name: entry[name] for name in _FIELDS if name in entry}
    if not fields or not all(isinstance(value, str) and value for value in fields.values()):
        raise ValueError("an entry needs at least one of code, type and message, as text")
    return RefusalRule(status, **fields)
