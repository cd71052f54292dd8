"""Facts that a model found in messages: what of its answer is taken, and how it becomes a memory."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.errors import InvalidArgument
from loom_common.json_text import Finding, parse_object
from loom_common.lenient_json import JsonValue
from loom_common.times import format_optional_time, parse_time
from loom_memory.domain.conversation import Window
from loom_memory.domain.memory import Content, to_milliseconds
from loom_memory.domain.relative_times import anchored, find_words, resolve_words

KINDS: Final = ("fact", "decision", "constraint", "preference", "event", "task", "note")
"""What a fact may be; another word counts as `fact`."""

MAX_FACTS: Final = 400
"""Most facts of one window. Source: chosen; more than the longest answer holds."""

_MAX_VALUE_CHARS: Final = 4_000
_MAX_TAGS: Final = 8
_TAG: Final = re.compile(r"[\w][\w .:/-]{0,63}")
_KEY_BYTES: Final = 15
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact.

    Attributes:
        text: The fact, which names its subject.
        subject: Whom or what it is about.
        kind: One of `KINDS`.
        tags: Labels.
        importance: 0 to 1.
        event_time: When what it tells happened; where the message does not say, when it was said.
        message: Place of the message in the conversation that it is taken from.
    """

    text: str
    subject: str
    kind: str
    tags: tuple[str, ...]
    importance: float
    event_time: datetime | None
    message: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What an answer of the model holds.

    Attributes:
        facts: The facts that are whole.
        truncated: Whether the answer breaks off.
        readable: Whether it is an answer at all: an object with a list of facts, empty or not.
    """

    facts: tuple[Fact, ...] = ()
    truncated: bool = False
    readable: bool = True


def read_reply(text: str, window: Window, *, stopped: bool = False) -> Reply:
    """Returns what a model's answer to a window's prompt holds.

    Args:
        text: The answer, whatever stands around or inside it.
        window: The messages that it is about.
        stopped: Whether the model was stopped by its cap.
    """
    parsed = parse_object(text)
    held = None if parsed.value is None else parsed.value.get("facts")
    truncated = parsed.finding is Finding.TRUNCATED or (stopped and not isinstance(held, list))
    if not isinstance(held, list):
        return Reply(truncated=truncated, readable=False)
    facts = [fact for entry in held[:MAX_FACTS] if (fact := _fact(entry, window)) is not None]
    # A model that repeats itself says nothing more.
    unique = {_normalized(fact.text): fact for fact in reversed(facts)}
    return Reply(tuple(reversed(unique.values())), truncated, True)


def fact_key(fact: Fact) -> str:
    """Returns the key of a fact's memory, the same whenever the same fact is found again."""
    told = [_normalized(fact.text), format_optional_time(fact.event_time)]
    return f"fact-{hashlib.blake2b(json.dumps(told).encode(), digest_size=_KEY_BYTES).hexdigest()}"


def fact_content(fact: Fact, *, source: str, agent: str, tags: Sequence[str]) -> Content:
    """Returns what is stored of a fact.

    It has no speaker: it is no turn of a conversation, which would stand for itself beside what says the same.
    """
    return Content(
        value=fact.text,
        kind=fact.kind,
        tags=tuple(dict.fromkeys([*tags, *fact.tags]))[:32],
        importance=fact.importance,
        agent=agent,
        source=source,
        event_time=fact.event_time,
    )


def _fact(entry: JsonValue, window: Window) -> Fact | None:
    if isinstance(entry, str):
        entry = {"fact": entry}
    if not isinstance(entry, dict):
        return None
    text = _text(entry.get("fact") or entry.get("text") or entry.get("value"), _MAX_VALUE_CHARS)
    if not any(character.isalnum() for character in text):
        return None
    place = _place(entry.get("message"), window)
    said_at = window.messages[place].said_at
    subject = _text(entry.get("subject"), 256)
    if said_at is not None:
        text = anchored(text, said_at)
    return Fact(
        text=_with_subject(text, subject),
        subject=subject,
        kind=_kind(entry.get("kind")),
        tags=_tags(entry.get("tags")),
        importance=_importance(entry.get("importance")),
        event_time=_event_time(_text(entry.get("when"), 64), text, said_at),
        message=window.places[place],
    )


def _text(value: JsonValue, most: int) -> str:
    return _SPACE.sub(" ", value).strip()[:most] if isinstance(value, str) else ""


def _place(value: JsonValue, window: Window) -> int:
    """Returns which of the window's messages an entry names; the last where it names none."""
    last = len(window.messages) - 1
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value.strip()[:6])
    if isinstance(value, bool) or not isinstance(value, int):
        return last
    return window.places.index(value - 1) if value - 1 in window.places else last


def _with_subject(text: str, subject: str) -> str:
    """Returns the fact with its subject before it, where it does not name it: alone it would be nobody's."""
    if not subject or subject.casefold() in ("user", "assistant", "unknown", "none"):
        return text
    words = [word for word in subject.casefold().split() if len(word) > 1] or [subject.casefold()]
    folded = text.casefold()
    return text if any(word in folded for word in words) else f"{subject}: {text}"


def _kind(value: JsonValue) -> str:
    kind = value.strip().lower() if isinstance(value, str) else ""
    return kind if kind in KINDS else "fact"


def _tags(value: JsonValue) -> tuple[str, ...]:
    given = value if isinstance(value, list) else []
    tags = [_text(tag, 64).lower() for tag in given]
    return tuple(dict.fromkeys(tag for tag in tags if _TAG.fullmatch(tag)))[:_MAX_TAGS]


def _importance(value: JsonValue) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.5
    return min(max(float(value), 0.0), 1.0)


def _event_time(when: str, text: str, said_at: datetime | None) -> datetime | None:
    """Returns when it happened.

    Words are resolved here and not by the model, which reckons with dates badly; a date that it gives is taken.
    """
    if when:
        try:
            return to_milliseconds(parse_time(when, "when"))
        except InvalidArgument:
            if said_at is not None and (found := resolve_words(when, said_at)) is not None:
                return to_milliseconds(found)
    if said_at is None:
        return None
    found_in_text = find_words(text, said_at)
    return to_milliseconds(found_in_text[1] if found_in_text is not None else said_at)


def _normalized(text: str) -> str:
    return _SPACE.sub(" ", unicodedata.normalize("NFKC", text)).casefold().strip(" .!")
