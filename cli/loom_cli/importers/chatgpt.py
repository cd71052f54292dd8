"""ChatGPT: `conversations.json` of its data export, in the zip or by itself; each conversation is a tree."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from loom_cli.importers.items import ConversationItem, Item, Refused, Skipped, Turn, turns_of
from loom_cli.importers.values import fields, first_text, listed, text, time_seconds

MEMBER: Final = "conversations"

_TEXT_TYPES: Final = frozenset({"text", "multimodal_text"})


def items(values: Iterable[tuple[str, object]]) -> Iterator[Item]:
    """Yields the conversations, of each the branch that was open last."""
    for where, value in values:
        row = fields(value)
        if not isinstance(row.get("mapping"), dict):
            yield Refused(where, "is no conversation: it has no `mapping`")
        else:
            yield from _conversation(where, row)


def _conversation(where: str, row: Mapping[str, object]) -> Iterator[Item]:
    conversation_id = first_text(row, "conversation_id", "id")
    where = f"{where} ({conversation_id})" if conversation_id else where
    if not conversation_id:
        yield Refused(where, "has no id")
        return
    mapping = fields(row["mapping"])
    branch = _branch(mapping, text(row.get("current_node")))
    # The root of every tree has no message.
    messages = ((node_id, found) for node_id in branch if (found := fields(fields(mapping[node_id]).get("message"))))
    places = ((f"{where}, message {node_id}", node_id, message) for node_id, message in messages)
    turns, others = turns_of((place, _turn(place, node_id, message)) for place, node_id, message in places)
    yield from others
    on_branch = set(branch)
    for node_id, node in mapping.items():
        if node_id not in on_branch and fields(fields(node).get("message")):
            yield Skipped(f"{where}, message {node_id}", "a message of another branch")
    if turns:
        yield ConversationItem(where, conversation_id, first_text(row, "title").strip(), turns)
    else:
        yield Skipped(where, "a conversation without text")


def _branch(mapping: Mapping[str, object], current: str) -> list[str]:
    """Returns the ids from the root down to the current message; from the newest leaf's root where none is named."""
    if current not in mapping:
        leaves = [name for name, node in mapping.items() if not listed(fields(node).get("children"))]
        current = max(leaves, key=lambda name: _created(mapping[name]), default="")
    branch: dict[str, None] = {}
    # A tree that leads back into itself ends where it does.
    while current in mapping and current not in branch:
        branch[current] = None
        current = text(fields(mapping[current]).get("parent"))
    return list(reversed(branch))


def _created(node: object) -> str:
    return time_seconds(fields(fields(node).get("message")).get("create_time"))


def _turn(where: str, node_id: str, message: Mapping[str, object]) -> Turn | Skipped:
    role = text(fields(message.get("author")).get("role"))
    if role not in ("user", "assistant"):
        return Skipped(where, f"a message of the {'tool' if role == 'tool' else 'system'}")
    if fields(message.get("metadata")).get("is_visually_hidden_from_conversation") is True:
        return Skipped(where, "a hidden message")
    content = fields(message.get("content"))
    if content.get("content_type", "text") not in _TEXT_TYPES or text(message.get("recipient")) not in ("", "all"):
        return Skipped(where, "a message that is no text, such as code, reasoning or a call of a tool")
    said = "\n".join(part for part in map(_part, listed(content.get("parts"))) if part.strip())
    if not said:
        return Skipped(where, "a message without text")
    return Turn(first_text(message, "id") or node_id, role, said, time_seconds(message.get("create_time")))


def _part(part: object) -> str:
    # What was spoken has its words beside the sound; images and files have none.
    return part if isinstance(part, str) else text(fields(part).get("text"))
