"""The text of a tool's result: what a model reads where its client passes on no structured content."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from google.protobuf.message import Message
from pydantic import JsonValue

from loom.memory.v1 import memory_pb2, search_pb2
from loom_gateway.contract.answers import encode

# What would end a citation early, and the sign of the encoding itself where it would be read as one.
_ENCODED: Final = re.compile(r"[\]\r\n]|%(?=25|5D|0A|0D)")
_DECODED: Final = re.compile(r"%(25|5D|0A|0D)")


def summary(tool: str, request: Message, response: Message, rendered: dict[str, JsonValue]) -> str:
    """Returns the text of a result.

    Args:
        tool: Name of the tool.
        request: What was asked.
        response: What was answered.
        rendered: The answer as JSON, which is the text of every tool without words of its own.
    """
    worded = _WORDED.get(tool)
    return worded(request, response) if worded is not None else encode(rendered).decode("utf-8")


def citation_key(key: str) -> str:
    """Returns a key as it stands in brackets: `]` and line ends percent-encoded."""
    return _ENCODED.sub(lambda found: f"%{ord(found[0]):02X}", key)


def key_of_citation(text: str) -> str:
    """Returns the key that `citation_key` wrote."""
    return _DECODED.sub(lambda found: chr(int(found[1], 16)), text)


def _search_text(request: Message, response: Message) -> str:
    assert isinstance(request, search_pb2.SearchRequest), "bound by name"
    assert isinstance(response, search_pb2.SearchResponse), "bound by name"
    section = response.memory
    count = len(section.hits)
    lines = [f"loom_search {request.query!r}: {count} memory {'hit' if count == 1 else 'hits'}{_why_none(section)}."]
    lines += [_paragraph(hit) for hit in section.hits]
    return "\n\n".join(lines)


def _why_none(section: search_pb2.MemorySection) -> str:
    if section.error:
        return f" ({section.error}: memories could not be read)"
    return f" ({section.abstain_code})" if section.abstain_code and not section.hits else ""


def _paragraph(hit: memory_pb2.MemoryHit) -> str:
    memory = hit.memory
    date = (memory.event_time or memory.updated_at)[:10]
    kind = f"{memory.kind}, low" if hit.low else memory.kind
    more = " ..." if memory.value_truncated else ""
    said = f"{memory.speaker}: " if memory.speaker else ""
    return f"[{date}] [{citation_key(memory.key)}] ({kind}) {said}{memory.value}{more}".rstrip()


_WORDED: Final[Mapping[str, Callable[[Message, Message], str]]] = {"loom_search": _search_text}
