"""What a model takes, learned from what its provider refuses: no model's name decides what a request carries.

Each request begins as Loom would like it: temperature 0, the lowest reasoning effort, the caller's cap on the answer. A
400 that names one of these teaches what the model takes instead, and later requests are sent that way at once.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import structlog

TEMPERATURE: Final = "temperature"
REASONING_EFFORT: Final = "reasoning_effort"
OUTPUT_CONFIG: Final = "output_config"
STREAM_OPTIONS: Final = "stream_options"

# Source: chosen. Answers of Loom's features are read by programs; the same prompt should give the same answer.
WISHED_TEMPERATURE: Final = 0.0

CapField: TypeAlias = Literal["max_completion_tokens", "max_tokens"]

_OTHER_CAP: Final[Mapping[CapField, CapField]] = {
    "max_completion_tokens": "max_tokens",
    "max_tokens": "max_completion_tokens",
}
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""From the lowest; the words of OpenAI's API."""

_QUOTED: Final = re.compile(r"""['"`]([a-z]+)['"`]""")
# Not a part of a model's name or of a date.
_NUMBER: Final = re.compile(r"(?<![\w.-])(?:\d{1,3}(?:,\d{3})+|\d+)(?![\w-])")
# How providers say that a field itself is the fault. Bounds ("must be at least 16") name a field that is taken.
_NOT_TAKEN: Final = re.compile(
    r"unsupported|not supported|does ?n[o']t support|unrecogni[sz]ed|unknown|unexpected|not permitted|not allowed"
    r"|deprecated|instead|invalid (?:field|parameter|argument)"
)
# The room of prompt and answer together says nothing about the answer's own limit.
_CONTEXT: Final = re.compile(r"context[_ ](?:length|window|size)|prompt is too long")

# Source: chosen. A shape that is refused is refused before the model begins to think, within a round trip.
LEARNING_WAIT_S: Final = 2.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Shape:
    """How requests to one model are sent."""

    cap_field: CapField
    """Name under which the cap on the answer is sent."""
    effort: str | None = None
    """Reasoning effort to send; None for none."""
    dropped: frozenset[str] = frozenset()
    """Fields that are left out."""
    max_output: int | None = None
    """Largest cap that the model takes, where it told."""

    def carries(self, field: str) -> bool:
        """Returns whether requests carry a field."""
        return field not in self.dropped


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a provider says of a request that it refuses. It may quote the prompt: it is read here and never shown."""

    message: str
    field: str | None = None
    """Field that the provider names beside its words."""

    def names(self, field: str) -> bool:
        """Returns whether it is about `field`, or about something inside of it."""
        if self.field is not None:
            return self.field == field or self.field.startswith(f"{field}.")
        return re.search(rf"(?<!\w){field}(?!\w)", self.message) is not None


class Traits:
    """What is known of one model, in this process. Shared by all calls to it.

    Args:
        model: Its name.
        shape: How requests would best be sent.
        reserve_max: Most tokens that are added to a cap for hidden reasoning.
        learning_wait_s: Longest time that one call waits for what another one learns.
    """

    def __init__(self, model: str, shape: Shape, *, reserve_max: int, learning_wait_s: float = LEARNING_WAIT_S) -> None:
        self.shape = shape
        """How requests are sent now."""
        self._model = model
        self._reserve_max = reserve_max
        self._reserve = 0
        self._learning_wait_s = learning_wait_s
        self._learning = asyncio.Lock()
        self._accepted_cap = 0
        self._refused_caps: set[str] = set()

    def cap(self, max_tokens: int) -> int:
        """Returns the cap to send for an answer of `max_tokens`: room for hidden reasoning is added."""
        return self.clamped(max_tokens + self._reserve)

    def ceiling(self, max_tokens: int) -> int:
        """Returns the largest cap to send for an answer of `max_tokens`."""
        return self.clamped(max_tokens + self._reserve_max)

    def clamped(self, cap: int) -> int:
        """Returns `cap`, or what the model takes where that is less."""
        return cap if self.shape.max_output is None else min(cap, self.shape.max_output)

    @asynccontextmanager
    async def turn(self, cap: int) -> AsyncIterator[None]:
        """Lets one call at a time try what was never accepted, so that many at once are not all refused.

        Nobody waits for another longer than the learning takes where the provider answers at all: a call that hangs, or
        a model that thinks for long, holds up no other.
        """
        if self._known(cap):
            yield
            return
        try:
            async with asyncio.timeout(self._learning_wait_s):
                await self._learning.acquire()
        except TimeoutError:
            yield
            return
        if self._known(cap):
            self._learning.release()
            yield
            return
        try:
            yield
        finally:
            self._learning.release()

    def accepted(self, cap: int, shape: Shape) -> None:
        """Notes that a request of that cap and shape was not refused."""
        if shape == self.shape:
            self._accepted_cap = max(self._accepted_cap, cap)

    def reasoned(self, tokens: int) -> None:
        """Notes how many tokens of an answer were hidden reasoning: twice the most seen is kept free for it."""
        self._reserve = max(self._reserve, min(2 * tokens, self._reserve_max))

    def learn(self, refusal: Refusal, sent: Shape, cap: int) -> bool:
        """Learns from a refusal what the model takes.

        Args:
            refusal: What the provider says.
            sent: Shape of the request.
            cap: Cap of the request.

        Returns:
            Whether the request should be sent again in the shape of now.
        """
        learned = self._learned(refusal, sent, cap)
        if learned is None:
            return False
        if self.shape == sent:
            self.shape = learned
            _log.info(
                "model_shape_learned",
                model=self._model,
                dropped=sorted(learned.dropped),
                cap_field=learned.cap_field,
                effort=learned.effort,
                max_output=learned.max_output,
            )
        else:
            # Another call learned meanwhile; both lessons count.
            self.shape = _merged(self.shape, sent, learned)
        return True

    def _learned(self, refusal: Refusal, sent: Shape, cap: int) -> Shape | None:
        cap_named = refusal.names(sent.cap_field) or refusal.names(_OTHER_CAP[sent.cap_field])
        about_output = cap_named or re.search(r"(?:output|completion) tokens", refusal.message) is not None
        if _CONTEXT.search(refusal.message.lower()):
            return None
        if sent.carries(REASONING_EFFORT) and sent.effort is not None and refusal.names(REASONING_EFFORT):
            return _other_effort(refusal, sent)
        for name in (TEMPERATURE, OUTPUT_CONFIG, STREAM_OPTIONS):
            if sent.carries(name) and refusal.names(name):
                return replace(sent, dropped=sent.dropped | {name})
        limit = _limit(refusal.message.replace(self._model, ""), cap)
        if about_output and limit is not None:
            return replace(sent, max_output=limit)
        if cap_named and _NOT_TAKEN.search(refusal.message.lower()):
            self._refused_caps.add(sent.cap_field)
            other = _OTHER_CAP[sent.cap_field]
            return None if other in self._refused_caps else replace(sent, cap_field=other)
        return None

    def _known(self, cap: int) -> bool:
        return self.clamped(cap) <= self._accepted_cap


def _other_effort(refusal: Refusal, sent: Shape) -> Shape:
    listed = [effort for effort in _EFFORTS if effort in _QUOTED.findall(refusal.message) and effort != sent.effort]
    if listed:
        return replace(sent, effort=listed[0])
    return replace(sent, effort=None, dropped=sent.dropped | {REASONING_EFFORT})


def _limit(message: str, cap: int) -> int | None:
    """Returns the limit that a message tells: the largest number in it below what was asked for."""
    numbers = [int(found.replace(",", "")) for found in _NUMBER.findall(message)]
    return max((number for number in numbers if 0 < number < cap), default=None)


def _merged(now: Shape, sent: Shape, learned: Shape) -> Shape:
    limits = [limit for limit in (now.max_output, learned.max_output) if limit is not None]
    return Shape(
        cap_field=now.cap_field if learned.cap_field == sent.cap_field else learned.cap_field,
        effort=now.effort if learned.effort == sent.effort else learned.effort,
        dropped=now.dropped | learned.dropped,
        max_output=min(limits, default=None),
    )
