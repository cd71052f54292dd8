"""What a model is sent to take facts out of messages."""

from collections.abc import Sequence

from loom_common.times import format_optional_time
from loom_memory.domain.conversation import Message, Window
from loom_memory.domain.facts import Fact
from loom_memory.domain.fencing import fenced
from loom_memory.domain.prompts import extraction as prompts

CODING = "coding"


def system_prompt(capture: str, *addenda: str) -> str:
    """Returns the instructions for a kind of conversation, with what is added for another try."""
    parts = [prompts.FACTS.text, *([prompts.CODING.text] if capture == CODING else []), *addenda]
    return "\n\n".join(parts)


def window_prompt(window: Window) -> str:
    """Returns the messages of a window as data."""
    before = [_line("before", message) for message in window.before]
    numbered = [_line(str(place + 1), message) for place, message in zip(window.places, window.messages, strict=True)]
    return f"Take the facts out of these messages.\n{fenced('messages', chr(10).join([*before, *numbered]))}"


def verify_prompt(window: Window, facts: Sequence[Fact]) -> str:
    """Returns messages and the facts that were taken out of them, as data."""
    told = "\n".join(f"{number}. {fact.text}" for number, fact in enumerate(facts, start=1))
    return f"{window_prompt(window)}\nThese are the facts.\n{fenced('facts', told)}"


def _line(number: str, message: Message) -> str:
    said_at = format_optional_time(message.said_at) or "time unknown"
    return f"[{number}] ({said_at}) {message.who}: {message.content}"
