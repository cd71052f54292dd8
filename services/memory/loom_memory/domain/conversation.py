"""The messages of a conversation, as they come to be remembered."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from loom_common.times import format_optional_time, parse_optional_time

WINDOW_CHARS: Final = 24_000
"""Characters of messages that one call to a model reads. Source: chosen; some 6,000 tokens, whose facts fit into the
longest answer that is asked for."""

_CONTEXT_MESSAGES: Final = 2
_CONTEXT_CHARS: Final = 1_000
_KEY_BYTES: Final = 15
# Source: chosen. No word and no identifier is as long; encoded files are hundreds of times longer.
_ENCODED: Final = re.compile(r"(?:data:[\w/+.-]{1,100};base64,)?[A-Za-z0-9+/_-]{200,}={0,2}")
_ENCODED_LINES: Final = re.compile(r"(?:^[A-Za-z0-9+/]{60,76}={0,2}$\n?){4,}", re.MULTILINE)
# Source: chosen; a short sentence has as many.
_TRIVIAL_LETTERS: Final = 40
_LETTERS: Final = re.compile(r"\w", re.UNICODE)


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        role: `user`, `assistant`, `system` or `tool`.
        content: What was said.
        speaker: Name of who said it; empty where only the role is known.
        said_at: When, in UTC, cut to milliseconds; None where nobody says.
        id: The writer's own name of it; empty for none.
    """

    role: str
    content: str
    speaker: str = ""
    said_at: datetime | None = None
    id: str = ""

    @property
    def who(self) -> str:
        """Who said it: the name, else the role."""
        return self.speaker or self.role


@dataclass(frozen=True, slots=True)
class Window:
    """Messages that one call to a model reads.

    Attributes:
        messages: What facts are taken from; a long message may be here in pieces.
        places: Place of each in the conversation.
        before: The messages before them, for understanding alone.
    """

    messages: tuple[Message, ...]
    places: tuple[int, ...]
    before: tuple[Message, ...] = ()

    @property
    def is_trivial(self) -> bool:
        """Whether so little is said that no fact is to be expected: greetings and the like."""
        return sum(len(_LETTERS.findall(message.content)) for message in self.messages) < _TRIVIAL_LETTERS


def windows(messages: Sequence[Message], size: int = WINDOW_CHARS) -> Iterator[Window]:
    """Yields the conversation in parts of at most `size` characters; encoded files in it are left out."""
    held: list[tuple[int, Message]] = []
    length = 0
    for place, message in enumerate(messages):
        for piece in _pieces(without_payloads(message.content), size):
            if held and length + len(piece) > size:
                yield _window(messages, held)
                held, length = [], 0
            held.append((place, replace(message, content=piece)))
            length += len(piece)
    if held:
        yield _window(messages, held)


def without_payloads(text: str) -> str:
    """Returns the text with encoded files left out, of which no model can say anything; each leaves a note."""
    noted = _ENCODED_LINES.sub(lambda found: f"[{len(found[0])} characters of encoded data]\n", text)
    return _ENCODED.sub(_noted, noted)


def message_keys(messages: Sequence[Message]) -> list[str]:
    """Returns the key of each message's own row, the same whenever the same messages come again.

    A message that has an identifier is named by it; another by who said what and when, and where that is said several
    times, by how often before.
    """
    seen: Counter[str] = Counter()
    keys = []
    for message in messages:
        if message.id:
            told = ["id", message.id]
        else:
            said_at = format_optional_time(message.said_at)
            told = ["said", message.role, message.speaker, said_at, message.content]
        name = json.dumps(told)
        keys.append(f"msg-{_digest(json.dumps([*told, seen[name]]))}")
        seen[name] += 1
    return keys


def request_id(told: Mapping[str, Any], messages: Sequence[Message]) -> str:
    """Returns the name of a request to remember a conversation: the same for the same messages and options."""
    return f"x-{_digest(json.dumps([dict(told), messages_to_json(messages)], sort_keys=True))}"


def messages_to_json(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Returns the messages as they are kept while they wait."""
    return [
        {
            "role": message.role,
            "content": message.content,
            "speaker": message.speaker,
            "said_at": format_optional_time(message.said_at),
            "id": message.id,
        }
        for message in messages
    ]


def messages_from_json(held: Sequence[Mapping[str, str]]) -> list[Message]:
    """Returns what `messages_to_json` kept."""
    return [
        Message(one["role"], one["content"], one["speaker"], parse_optional_time(one["said_at"], "said_at"), one["id"])
        for one in held
    ]


def _window(messages: Sequence[Message], held: Sequence[tuple[int, Message]]) -> Window:
    places = tuple(place for place, _ in held)
    return Window(tuple(message for _, message in held), places, _context(messages, places[0]))


def _context(messages: Sequence[Message], first: int) -> tuple[Message, ...]:
    return tuple(
        replace(before, content=without_payloads(before.content)[:_CONTEXT_CHARS])
        for before in messages[max(0, first - _CONTEXT_MESSAGES) : first]
    )


def _pieces(text: str, size: int) -> list[str]:
    """Returns the text in pieces of at most `size`, broken between words where there are some."""
    pieces = []
    while len(text) > size:
        cut = max(text.rfind(" ", size // 2, size), text.rfind("\n", size // 2, size))
        cut = size if cut < 0 else cut
        pieces.append(text[:cut])
        text = text[cut:]
    return [*pieces, text]


def _noted(found: "re.Match[str]") -> str:
    text = found[0]
    # A long run of one kind of letters is somebody's word or a rule drawn under a title.
    is_mixed = any(letter.isdigit() for letter in text) and any(letter.isupper() for letter in text)
    return f"[{len(text)} characters of encoded data]" if is_mixed or text.startswith("data:") else text


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).hexdigest()
