"""The structured content of a search as a model's client needs it: without what is empty, or stands in the text."""

from google.protobuf.message import Message
from pydantic import JsonValue

from loom.memory.v1 import search_pb2
from loom_gateway.contract.answers import render
from loom_gateway.contract.schema import Schema

# The blocks of the text, which stands beside the structured content.
_IN_TEXT = "rendered"


def structured(request: Message, response: Message) -> dict[str, JsonValue]:
    """Returns the structured content of an answer: lean for a search that is not asked to explain, else all of it."""
    if isinstance(response, search_pb2.SearchResponse) and not getattr(request, "explain", False):
        return _lean(response, render(response))
    return render(response)


def lean_schema(schema: Schema) -> Schema:
    """Returns the schema of an answer any of whose members may be left out."""
    return {name: _loosened(value) for name, value in schema.items() if name != "required"}


def _lean(message: Message, whole: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Returns what says something of a message, whose JSON is `whole`."""
    shown: dict[str, JsonValue] = {}
    for field, value in message.ListFields():
        told = whole[field.name]
        if field.name == _IN_TEXT or told in ("", [], {}):
            continue
        if isinstance(told, dict) and isinstance(value, Message):
            told = _lean(value, told)
        elif isinstance(told, list) and field.message_type is not None:
            told = [_lean(item, held) for item, held in zip(value, told, strict=True) if isinstance(held, dict)]
        shown[field.name] = told
    return shown


def _loosened(value: JsonValue) -> JsonValue:
    """Returns a part of a schema without what it requires; names of members are no keywords."""
    if not isinstance(value, dict):
        return value
    if value.get("type") in ("object", "array") or "properties" in value:
        return lean_schema(value)
    return {name: _loosened(held) for name, held in value.items()}
