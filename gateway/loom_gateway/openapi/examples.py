"""Requests that show what each operation is called with. A test sends every one of them."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import JsonValue

from loom_common.ops import OpSpec
from loom_gateway.contract.schema import request_schema

Object = dict[str, JsonValue]

_TEXTS: Final[list[JsonValue]] = [
    {"one": "How do I roll a release back?", "other": "The way to undo a deployment"},
    {"one": "Where are the invoices kept?", "other": "Invoices lie in the finance folder"},
    {"one": "Who is on call this week?", "other": "Ana is on call until Sunday"},
    {"one": "When does the shop open?", "other": "Opening hours are nine to five"},
    {"one": "What does Bo like to drink?", "other": "Bo prefers black coffee"},
]
_UNLIKE: Final[list[JsonValue]] = [
    {"one": "How do I roll a release back?", "other": "The cat sleeps on the sofa"},
    {"one": "Who is on call this week?", "other": "Bread rises for two hours"},
    {"one": "When does the shop open?", "other": "The train to Oslo is late"},
]

EXAMPLES: Final[Mapping[str, Object]] = {
    "memory.set": {"key": "deploy-day", "value": "Deployments go out on Tuesdays.", "tags": ["process"]},
    "memory.set_many": {"items": [{"value": "Ana drinks green tea."}, {"value": "Bo keeps bees.", "key": "bo"}]},
    "memory.get": {"key": "deploy-day"},
    "memory.list": {"page_size": 20},
    "memory.search": {"query": "when can we deploy?", "top_k": 5},
    "memory.delete": {"key": "deploy-day"},
    "memory.history": {"key": "deploy-day"},
    "search.query": {"query": "when can we deploy?"},
    "memory.ask": {"question": "On which day do we deploy?"},
    "memory.brief": {"topic": "deployments"},
    "memory.set_from_messages": {
        "messages": [
            {
                "role": "user",
                "speaker": "Ana",
                "said_at": "2026-11-30T13:05:00Z",
                "content": "We deploy on Tuesdays from now on.",
            }
        ]
    },
    "assistant.ask": {"question": "On which day do we deploy?"},
    "token.create": {"namespaces": [{"namespace": "team-a", "role": "writer"}], "label": "build server"},
    "token.revoke": {"token_id": "01M8PDEJYJH50GMM6645HW8925"},
    "namespace.create": {"name": "team-notes"},
    "org.set_model_calls": {"enabled": True},
    "usage.summary": {"since": "2026-11-01", "group_by": "day"},
    "code.calibrate": {"similar": _TEXTS, "distractors": _UNLIKE},
}
"""By operation; one that is not here is shown with the least that it takes."""


def example_of(spec: OpSpec) -> Object:
    """Returns a request that the operation takes."""
    found = EXAMPLES.get(spec.name)
    return found if found is not None else _least(request_schema(spec.request, described=False))


def _least(schema: Any) -> Any:  # Any: a schema and the value that fits it are both any JSON
    if "enum" in schema:
        return schema["enum"][0]
    match schema["type"]:
        case "object":
            return {name: _least(schema["properties"][name]) for name in schema.get("required", [])}
        case "array":
            return [_least(schema["items"])] * schema.get("minItems", 0)
        case "string":
            return "example"[: schema.get("maxLength", 7)].ljust(schema.get("minLength", 0), "e")
        case "integer":
            return max(0, schema["minimum"])
        case "number":
            return schema.get("minimum", 0.5)
        case _:
            return True
