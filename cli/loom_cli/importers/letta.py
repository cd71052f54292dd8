"""Letta: agent files (`.af`) of either form, and lists of archival passages as its API answers them."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from loom_cli.importers.items import (
    ConversationItem,
    Item,
    MemoryItem,
    Refused,
    Skipped,
    Turn,
    key_of,
    tags_of,
    turns_of,
)
from loom_cli.importers.values import fields, first_text, listed, text, texts, time_text

_KIND: Final = "letta"
_PASSAGES: Final = ("passages", "archival_passages", "archival_memory")
_DIGEST_CHARS: Final = 32
_SEND: Final = "send_message"
# What the harness says to the agent in a user's place.
_HARNESS: Final = frozenset({"heartbeat", "login", "system_alert"})


def items(values: Iterable[tuple[str, object]]) -> Iterator[Item]:
    """Yields blocks of core memory and archival passages as memories, and each agent's messages as a conversation."""
    for where, value in values:
        row = fields(value)
        if isinstance(row.get("agents"), list):
            yield from _agent_file(row)
        elif isinstance(row.get("core_memory"), list):
            yield from _agent(where, row, listed(row["core_memory"]))
            yield from _passages("", row)
        elif any(isinstance(row.get(name), list) for name in _PASSAGES):
            yield from _passages("", row)
        elif "text" in row:
            yield _passage(where, "", row)
        else:
            yield Refused(where, "is neither an agent file nor a passage")


def _agent_file(file: Mapping[str, object]) -> Iterator[Item]:
    blocks = {text(fields(block).get("id")): block for block in listed(file.get("blocks"))}
    used: set[str] = set()
    for at, agent in enumerate(listed(file["agents"]), 1):
        row = fields(agent)
        ids = [one for one in texts(row.get("block_ids")) if one in blocks]
        used.update(ids)
        held = [blocks[one] for one in ids] + listed(row.get("memory_blocks"))
        yield from _agent(f"agent {at}", row, held)
        yield from _passages(first_text(row, "name"), row)
    for block_id, block in blocks.items():
        if block_id not in used:
            yield _block(f"block {block_id}", "", fields(block))
    yield from _passages("", file)
    for at, source in enumerate(listed(file.get("files")), 1):
        name = first_text(fields(source), "file_name", "id")
        yield Skipped(f"file {at} ({name})", "a file; store it with `loom knowledge ingest`")


def _agent(where: str, agent: Mapping[str, object], blocks: Sequence[object]) -> Iterator[Item]:
    name = first_text(agent, "name", "id")
    for at, block in enumerate(blocks, 1):
        yield _block(f"{where}, block {at}", name, fields(block))
    messages = ((f"{where}, message {at}", fields(one)) for at, one in enumerate(listed(agent.get("messages")), 1))
    turns, others = turns_of((place, _turn(place, message)) for place, message in messages)
    yield from others
    if turns:
        title = f"{name} in Letta" if name else "Letta"
        yield ConversationItem(where, key_of(_KIND, name or where), title, turns, name)


def _block(where: str, agent: str, block: Mapping[str, object]) -> Item:
    label, value = first_text(block, "label"), first_text(block, "value")
    where = f"{where} ({label})" if label else where
    if not value:
        return Skipped(where, "an empty block")
    names = [name for name in (agent, "block", label or first_text(block, "id")) if name]
    return MemoryItem(
        where,
        {
            "key": key_of(_KIND, *names),
            "value": value.strip(),
            "kind": "core_memory",
            "agent": agent,
            # A block stands in every prompt of its agent, as a pinned memory does.
            "pinned": True,
            "tags": tags_of(_KIND, label),
            "created_at": time_text(block.get("created_at")),
            "source": _KIND,
        },
    )


def _passages(agent: str, holder: Mapping[str, object]) -> Iterator[Item]:
    for name in _PASSAGES:
        for at, passage in enumerate(listed(holder.get(name)), 1):
            yield _passage(f"{name} {at}", agent, fields(passage))


def _passage(where: str, agent: str, passage: Mapping[str, object]) -> Item:
    passage_id, value = first_text(passage, "id"), first_text(passage, "text")
    where = f"{where} ({passage_id})" if passage_id else where
    if passage.get("is_deleted") is True:
        return Skipped(where, "deleted in Letta")
    if not value:
        return Refused(where, "has no text")
    return MemoryItem(
        where,
        {
            "key": key_of(f"{_KIND}-passage", passage_id) if passage_id.startswith("passage-") else "",
            "value": value,
            "agent": agent,
            "tags": tags_of(_KIND, *texts(passage.get("tags"))),
            "created_at": time_text(passage.get("created_at")),
            "source": _KIND,
        },
    )


def _turn(where: str, message: Mapping[str, object]) -> Turn | Item:
    role = text(message.get("role"))
    if role not in ("user", "assistant"):
        return Skipped(where, f"a message of the {role if role in ('system', 'tool') else 'harness'}")
    said = _said(message) if role == "assistant" else _asked(_content(message))
    if said is None:
        return Skipped(where, "a message of the harness")
    if not said.strip():
        return Skipped(where, "a message without text")
    at = time_text(message.get("created_at"))
    # Ids are of the file: the next export of the same agent gives them to other messages.
    told = "\x1f".join((role, at, said)).encode("utf-8", "surrogatepass")
    return Turn(hashlib.sha256(told).hexdigest()[:_DIGEST_CHARS], role, said, at)


def _content(message: Mapping[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = [text(fields(part).get("text")) for part in listed(content) if fields(part).get("type", "text") == "text"]
    return "\n".join(part for part in parts if part) or text(message.get("text"))


def _asked(content: str) -> str | None:
    """Returns what a user said, out of the envelope that older agents are given it in; None for what no user said."""
    if not content.startswith("{"):
        return content
    try:
        envelope = fields(json.loads(content))
    except (ValueError, RecursionError):
        return content
    if envelope.get("type") in _HARNESS:
        return None
    return text(envelope.get("message")) if envelope.get("type") == "user_message" else content


def _said(message: Mapping[str, object]) -> str:
    """Returns what an agent said: the messages that it sent with a tool, else its own text."""
    sent = []
    for call in listed(message.get("tool_calls")):
        function = fields(fields(call).get("function"))
        if function.get("name") != _SEND:
            continue
        try:
            sent.append(text(fields(json.loads(text(function.get("arguments")))).get("message")))
        except (ValueError, RecursionError):
            continue
    # Where it sends with the tool, its own text is what it thinks.
    return "\n".join(part for part in sent if part) or ("" if listed(message.get("tool_calls")) else _content(message))
