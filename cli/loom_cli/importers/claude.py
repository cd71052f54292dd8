"""Claude: `conversations.json` of its data export, in the zip or by itself."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from loom_cli.importers.items import ConversationItem, Item, Refused, Skipped, Turn, turns_of
from loom_cli.importers.values import fields, first_text, listed, text, time_text

MEMBER: Final = "conversations"

_ROLES: Final = {"human": "user", "user": "user", "assistant": "assistant"}


def items(values: Iterable[tuple[str, object]]) -> Iterator[Item]:
    """Yields the conversations, with every message that has text."""
    for where, value in values:
        row = fields(value)
        if not isinstance(row.get("chat_messages"), list):
            yield Refused(where, "is no conversation: it has no `chat_messages`")
        else:
            yield from _conversation(where, row)


def _conversation(where: str, row: Mapping[str, object]) -> Iterator[Item]:
    conversation_id = first_text(row, "uuid")
    where = f"{where} ({conversation_id})" if conversation_id else where
    if not conversation_id:
        yield Refused(where, "has no uuid")
        return
    messages = enumerate(listed(row["chat_messages"]), 1)
    places = ((f"{where}, message {at}", str(at), fields(message)) for at, message in messages)
    turns, others = turns_of((place, _turn(place, number, message)) for place, number, message in places)
    yield from others
    if turns:
        yield ConversationItem(where, conversation_id, first_text(row, "name").strip(), turns)
    else:
        yield Skipped(where, "a conversation without text")


def _turn(where: str, number: str, message: Mapping[str, object]) -> Turn | Item:
    message_id = first_text(message, "uuid")
    where = f"{where} ({message_id})" if message_id else where
    role = _ROLES.get(text(message.get("sender")).lower())
    if role is None:
        return Refused(where, "has no sender")
    # Blocks of thinking and of tools stand beside those of text; the flat text of older exports mixes them.
    blocks = [text(fields(block).get("text")) for block in listed(message.get("content")) if _is_text(block)]
    said = "\n\n".join(block for block in blocks if block.strip()) or text(message.get("text"))
    if not said.strip():
        return Skipped(where, "a message without text")
    return Turn(message_id or number, role, said, time_text(message.get("created_at")))


def _is_text(block: object) -> bool:
    return fields(block).get("type") == "text"
