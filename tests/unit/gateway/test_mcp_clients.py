"""Every tool of every toolset against what clients and the models behind them take."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest

from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.mcp.server import INSTRUCTIONS, rosters_of
from loom_gateway.mcp.toolsets import Toolset

Schema = dict[str, Any]

# What a person is expected to name the server in a client's configuration; clients put it before each tool's name.
_SERVER = "loom"
_COMBINERS = {"anyOf", "oneOf", "allOf", "not", "if", "then", "else"}
_REFERENCES = {"$ref", "$defs", "definitions", "$dynamicRef"}
# The Schema object of the Gemini API, whose other keywords are "Unknown name" errors, and `additionalProperties`,
# which Gemini's clients strip and strict function calling needs.
_KEYWORDS = {"type", "format", "title", "description", "nullable", "enum", "items", "minItems", "maxItems"} | {
    "properties", "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "default",
    "minimum", "maximum", "additionalProperties"}  # fmt: skip


def nodes(schema: Schema) -> Iterator[Schema]:
    """Yields a schema and every schema inside of it."""
    yield schema
    for member in schema.get("properties", {}).values():
        yield from nodes(member)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from nodes(schema[name])


def depth(schema: Schema) -> int:
    inside = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return (schema.get("type") == "object") + max(map(depth, inside), default=0)


def objects(tool: Any) -> list[Schema]:
    return [node for node in nodes(tool.input_schema) if node.get("type") == "object"]


@dataclass(frozen=True)
class Rule:
    """One thing that a client asks of a tool."""

    clients: str
    says: str
    source: str
    """Where the client or its API says so, or answers so."""
    holds: Callable[[Any], bool]


RULES = [
    Rule(
        "Claude, OpenAI, VS Code",
        "a name is 1 to 64 of a-z, A-Z, 0-9, _ and -",
        "Claude Messages API, tools[].name; OpenAI Chat Completions, FunctionObject.name",
        lambda tool: re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool.name) is not None,
    ),
    Rule(
        "Gemini",
        "a name begins with a letter or an underscore, and its answer's copy has at most 63 characters",
        "Gemini API, FunctionDeclaration.name and FunctionCall.name",
        lambda tool: re.fullmatch(r"[a-zA-Z_].{0,62}", tool.name) is not None,
    ),
    Rule(
        "Claude Code, VS Code, Cursor",
        "server and tool together have at most 60 characters, in the longest form `mcp__<server>__<tool>` 64",
        "Cursor's warning `Combined server and tool name length exceeds 60 characters`; OpenAI's 64 behind VS Code",
        lambda tool: len(f"{_SERVER}{tool.name}") <= 60 and len(f"mcp__{_SERVER}__{tool.name}") <= 64,
    ),
    Rule(
        "OpenAI",
        "a description has at most 1,024 characters",
        "OpenAI API's error `string_above_max_length` on tools[].function.description",
        lambda tool: 20 <= len(tool.description or "") <= 1024,
    ),
    Rule(
        "Claude, OpenAI, Gemini, VS Code",
        "arguments are an object at the root",
        "Claude Messages API, tools[].input_schema; MCP, Tool.inputSchema",
        lambda tool: tool.input_schema["type"] == "object" and "properties" in tool.input_schema,
    ),
    Rule(
        "Claude, OpenAI, Gemini",
        "nothing is combined: no anyOf, oneOf, allOf, not or if, neither at the root nor below",
        "Claude's error `input_schema does not support oneOf, allOf, or anyOf at the top level`; OpenAI strict mode",
        lambda tool: not any(_COMBINERS & node.keys() for node in nodes(tool.input_schema)),
    ),
    Rule(
        "Claude, Gemini",
        "nothing is referenced",
        "Claude's managed agents: reference keywords are rejected anywhere; Gemini's Schema has no `$ref`",
        lambda tool: not any(_REFERENCES & node.keys() for node in nodes(tool.input_schema)),
    ),
    Rule(
        "Gemini",
        "only keywords of its Schema object stand in it",
        "Gemini API, Schema; its error `Invalid JSON payload received. Unknown name`",
        lambda tool: all(node.keys() <= _KEYWORDS for node in nodes(tool.input_schema)),
    ),
    Rule(
        "Gemini",
        "a type is one word, never a list of types",
        "Gemini's error `Proto field is not repeating, cannot start list`",
        lambda tool: all(isinstance(node.get("type"), str) for node in nodes(tool.input_schema)),
    ),
    Rule(
        "Gemini",
        "an object inside of the arguments has properties",
        "Gemini's error `should be non-empty for OBJECT type`",
        lambda tool: all(node.get("properties") for node in objects(tool)[1:]),
    ),
    Rule(
        "Gemini, OpenAI",
        "properties and required stand on objects only, and what is required is a property",
        "Gemini's errors `only allowed for OBJECT type` and `property is not defined`",
        lambda tool: all(
            set(node.get("required", ())) <= node.get("properties", {}).keys()
            and (node["type"] == "object" or not {"properties", "required"} & node.keys())
            for node in nodes(tool.input_schema)
        ),
    ),
    Rule(
        "Gemini",
        "a choice is among texts that are not empty",
        "Gemini's errors `enum: only allowed for STRING type` and `enum[0]: cannot be empty`",
        lambda tool: all(
            node["type"] == "string" and all(node["enum"]) for node in nodes(tool.input_schema) if "enum" in node
        ),
    ),
    Rule(
        "VS Code, OpenAI",
        "a list says what its items are",
        "VS Code's error `tool parameters array type must have items`",
        lambda tool: all(
            node.get("items", {}).get("type") for node in nodes(tool.input_schema) if node["type"] == "array"
        ),
    ),
    Rule(
        "Claude, Gemini",
        "an argument's name is 1 to 64 of a-z, A-Z, 0-9 and _, a letter or underscore first",
        "Claude's managed agents, property names; Gemini API, FunctionDeclaration.parameters",
        lambda tool: all(
            re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}", name)
            for node in nodes(tool.input_schema)
            for name in node.get("properties", {})
        ),
    ),
    Rule(
        "OpenAI strict",
        "every object is closed, so that a client can make the schema strict by naming all its properties required",
        "OpenAI structured outputs, supported schemas: additionalProperties must be false",
        lambda tool: all(node.get("additionalProperties") is False for node in objects(tool)),
    ),
    Rule(
        "OpenAI strict",
        "at most 10 levels, 5,000 properties, 1,000 words to choose from, 120,000 characters of names and words",
        "OpenAI structured outputs, supported schemas: limits",
        lambda tool: (
            depth(tool.input_schema) <= 10
            and sum(len(node.get("properties", ())) for node in nodes(tool.input_schema)) <= 5_000
            and sum(len(node.get("enum", ())) for node in nodes(tool.input_schema)) <= 1_000
            and len(json.dumps(tool.input_schema)) <= 120_000
        ),
    ),
    Rule(
        "OpenAI strict, Gemini",
        "no format is asked for: what each honours differs",
        "OpenAI structured outputs, formats; Gemini API, Schema.format",
        lambda tool: not any("format" in node for node in nodes(tool.input_schema)),
    ),
    Rule(
        "every model",
        "each argument is described",
        "MCP, tools: descriptions are what a model goes by",
        lambda tool: all(
            member.get("description") for node in objects(tool) for member in node.get("properties", {}).values()
        ),
    ),
    Rule(
        "VS Code, Claude",
        "a result is an object whose schema is valid, self-contained and requires nothing that an error lacks",
        "MCP, tools: output schema; clients hold an error's structured content to it too",
        lambda tool: (
            tool.output_schema["type"] == "object"
            and "required" not in tool.output_schema
            and not any((_COMBINERS | _REFERENCES) & node.keys() for node in nodes(tool.output_schema))
        ),
    ),
]

ROSTERS = rosters_of(Catalogue())
TOOLS = {f"{toolset.value}/{tool.name}": tool for toolset, roster in ROSTERS.items() for tool in roster.shown}


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_is_one_that_every_client_takes(name: str) -> None:
    tool = TOOLS[name]
    assert [f"{rule.clients}: {rule.says}" for rule in RULES if not rule.holds(tool)] == []
    for schema in (tool.input_schema, tool.output_schema):
        jsonschema.Draft202012Validator.check_schema(schema)
    assert tool.annotations is not None


@pytest.mark.parametrize("toolset", [Toolset.DEFAULT, Toolset.CODING, Toolset.ASSISTANT])
def test_a_toolset_for_agents_is_short_and_leads_with_the_search(toolset: Toolset) -> None:
    names = [tool.name for tool in ROSTERS[toolset].shown]
    assert 0 < len(names) <= 20
    assert names[0] == "loom_search"
    assert len(set(names)) == len(names)


def test_what_every_client_shows_a_model_first_is_not_cut() -> None:
    # Claude Code cuts instructions and descriptions at 2,048 characters.
    assert len(INSTRUCTIONS) < 2048


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "a list says what its items are"),
        ({"type": "object", "properties": {}, "anyOf": [{"required": ["a"]}]}, "nothing is combined"),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, "an object inside"),
        ({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}, "a type is one word"),
        ({"type": "object", "properties": {"a": {"$ref": "#/x"}}}, "nothing is referenced"),
        ({"type": "object", "properties": {"a-b": {"type": "string", "format": "uri"}}}, "no format"),
    ],
)
def test_the_rules_find_what_clients_refuse(schema: Schema, says: str) -> None:
    tool = TOOLS["default/memory_get"].model_copy(update={"input_schema": schema})
    broken = []
    for rule in RULES:
        try:
            broken += [] if rule.holds(tool) else [rule.says]
        except KeyError:
            continue
    assert any(found.startswith(says) for found in broken)
