"""Renders answers: messages out as JSON, with proto field names and empty values shown."""

import json

from google.protobuf import json_format
from google.protobuf.message import Message
from pydantic import JsonValue


def render(message: Message) -> dict[str, JsonValue]:
    """Returns an answer as JSON shows it: empty values are there, absent optional ones are not."""
    rendered: dict[str, JsonValue] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return rendered


def encode(value: JsonValue) -> bytes:
    """Returns a value as UTF-8 JSON.

    Text that UTF-8 cannot hold is replaced: an answer with one odd character is better than none.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
