"""Reads a whole file of another system before anything of it is stored: into lines of an import, and conversations."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from loom_cli.importers import chatgpt, claude, letta, mcp_memory, mem0, zep
from loom_cli.importers.items import (
    BadFile,
    ConversationItem,
    Item,
    MemoryItem,
    Refused,
    Skipped,
    turn_memory,
)
from loom_cli.importers.reading import values


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file.

    Attributes:
        items: Tells what the values of such a file hold; never raises.
        member: Name of the file that counts where it comes as a zip, without its ending.
    """

    items: Callable[[Iterable[tuple[str, object]]], Iterator[Item]]
    member: str = ""


KINDS: Final[Mapping[str, Kind]] = {
    "mem0": Kind(mem0.items),
    "zep": Kind(zep.items),
    "letta": Kind(letta.items),
    "mcp-memory": Kind(mcp_memory.items),
    "chatgpt": Kind(chatgpt.items, chatgpt.MEMBER),
    "claude": Kind(claude.items, claude.MEMBER),
}
"""By the name that a command line gives."""


@dataclass(frozen=True, slots=True)
class HeldConversation:
    """One conversation as it waits to be sent: a request of `conversation.append`, whole."""

    where: str
    conversation_id: str
    title: str
    agent: str
    turns: tuple[Mapping[str, str], ...]


@dataclass(slots=True)
class Converted:
    """What a file holds, on disk as far as it is long.

    Attributes:
        lines: Lines of an import, each a memory.
        wheres: Where each line comes from, in order.
        conversations: Number of conversations.
        turns: Number of their messages.
        refused: What could not be taken.
        skipped: What has no place here, by the reason.
    """

    lines: IO[bytes]
    _held: IO[bytes]
    wheres: list[str] = field(default_factory=list)
    conversations: int = 0
    turns: int = 0
    refused: list[Refused] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def read(self) -> int:
        """Number of things that the file holds: memories, messages, and what is refused or skipped."""
        return len(self.wheres) + self.turns + len(self.refused) + self.skipped.total()

    def memory_lines(self, first: int = 0) -> Iterator[bytes]:
        """Yields the lines from the `first` on, counted from 0."""
        self.lines.seek(0)
        for number, line in enumerate(self.lines):
            if number >= first:
                yield line.removesuffix(b"\n")

    def held_conversations(self, first: int = 0) -> Iterator[HeldConversation]:
        """Yields the conversations from the `first` on, counted from 0."""
        self._held.seek(0)
        for number, line in enumerate(self._held):
            if number >= first:
                told = json.loads(line)
                yield HeldConversation(**{**told, "turns": tuple(told["turns"])})

    def add(self, item: Item, kind: str, user: str, *, as_memories: bool) -> None:
        """Takes one thing that a file holds."""
        match item:
            case MemoryItem():
                self._add_memory(item, user)
            case ConversationItem() if as_memories:
                for place, turn in enumerate(item.turns, 1):
                    self._add_memory(turn_memory(kind, item, turn, place), user)
            case ConversationItem():
                self.conversations += 1
                self.turns += len(item.turns)
                self._held.write(_line(_held(item)))
            case Refused():
                self.refused.append(item)
            case Skipped():
                self.skipped[item.why] += 1

    def _add_memory(self, item: MemoryItem, user: str) -> None:
        record = {name: value for name, value in item.record.items() if value not in ("", [], None)}
        if user:
            record.setdefault("user_id", user)
        self.lines.write(_line(record))
        self.wheres.append(item.where)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lines.close()
        self._held.close()


def convert(kind: str, file: Path, spool: Callable[[], IO[bytes]], *, user: str = "", as_memories: bool) -> Converted:
    """Reads a file.

    Args:
        kind: One of `KINDS`.
        file: The file.
        spool: Makes an empty file for what is read.
        user: Files memories under this user that name none.
        as_memories: Whether each message of a conversation becomes a memory of its own.

    Raises:
        BadFile: It cannot be read, is not whole, or holds nothing of its kind. Nothing is stored then.
    """
    converted = Converted(spool(), spool())
    for item in KINDS[kind].items(values(file, member=KINDS[kind].member)):
        converted.add(item, kind, user, as_memories=as_memories)
    if converted.refused and len(converted.refused) == converted.read:
        first = converted.refused[0]
        raise BadFile(f"{file} is no file of the kind {kind!r}: {first.where} {first.why}")
    return converted


def _held(item: ConversationItem) -> Mapping[str, object]:
    return {
        "where": item.where,
        "conversation_id": item.conversation_id,
        "title": item.title,
        "agent": item.agent,
        "turns": [asdict(turn) for turn in item.turns],
    }


def _line(told: Mapping[str, object]) -> bytes:
    # ASCII: half surrogates of the file survive until the server, which refuses their line by its number.
    return json.dumps(told, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
