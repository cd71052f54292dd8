"""Prompts: what a person picks from a menu to have a model recall, save or tidy what is remembered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from loom.memory.v1 import search_pb2
from loom_gateway.mcp import paging
from loom_gateway.mcp.calling import Context, OpCaller
from loom_gateway.mcp.summaries import READING_RULE, search_text

_MAX_ARGUMENT_CHARS: Final = 2_000

_SAVE: Final = """\
Save what this conversation taught{about} that a later one will need.

1. Collect decisions with their reasons, preferences, constraints and facts that will still hold next week. Leave out \
greetings, guesses, secrets and what is written down elsewhere.
2. Search with loom_search for each of them first. Where a memory says the same, leave it. Where one says something \
older, write the new text under its key, so that it replaces the old one.
3. Store each with memory_set: one fact per memory, understandable on its own, with a short stable key such as \
`team/release-day` and a kind (decision, preference, constraint, fact, event or task). Give `event_time` where it \
happened on a day.
4. End with a list of the keys that you wrote and one line on each."""

_TIDY: Final = """\
Look through what is remembered{about} and tidy it.

1. Read it with loom_search and memory_list.
2. Find memories that contradict each other, that time has overtaken, that say the same twice, or that hold several \
facts in one text.
3. Propose each change with the keys it touches and why, and wait for a yes before you write or delete anything.
4. Then write with memory_set, under the key that stays, and remove the rest with memory_delete."""

_RECALL: Final = """\
Answer this from what is remembered, and say so where it holds no answer. Name the key in brackets after each claim \
that rests on a memory.

Question: {question}

What the search found for it (search again with loom_search in other words where this does not answer):

{found}"""

_RECALL_EMPTY: Final = "Nothing stored matched."


@dataclass(frozen=True, slots=True)
class _Prompt:
    shown: types.Prompt
    needs: frozenset[str]
    """Tools that its text tells the model to call; it is offered where the toolset has them."""
    text: Callable[[Mapping[str, str]], str]


def _about(template: str, name: str) -> Callable[[Mapping[str, str]], str]:
    def text(arguments: Mapping[str, str]) -> str:
        subject = arguments.get(name, "").strip()
        return template.format(about=f" about {subject}" if subject else "")

    return text


_PROMPTS: Final = (
    _Prompt(
        types.Prompt(
            name="recall",
            title="Answer from memory",
            description="Answers a question from what is remembered, with the keys of the memories it rests on.",
            arguments=[types.PromptArgument(name="question", description="What to answer.", required=True)],
        ),
        frozenset({"loom_search"}),
        lambda arguments: arguments["question"],
    ),
    _Prompt(
        types.Prompt(
            name="save_learned",
            title="Save what was learned",
            description="Stores what this conversation taught, one fact per memory, replacing what it makes obsolete.",
            arguments=[types.PromptArgument(name="about", description="Subject to keep to. Default: everything.")],
        ),
        frozenset({"loom_search", "memory_set"}),
        _about(_SAVE, "about"),
    ),
    _Prompt(
        types.Prompt(
            name="tidy",
            title="Tidy the memories",
            description="Finds memories that contradict each other, are out of date or double, and proposes changes.",
            arguments=[types.PromptArgument(name="about", description="Subject to keep to. Default: everything.")],
        ),
        frozenset({"loom_search", "memory_list", "memory_set", "memory_delete"}),
        _about(_TIDY, "about"),
    ),
)


class Prompts:
    """Lists prompts and fills them in."""

    def __init__(self, caller: OpCaller) -> None:
        self._caller = caller

    def list(self, tools: Mapping[str, object], params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        """Returns one page of the prompts for a toolset of these tools."""
        found, cursor = paging.page([prompt.shown for prompt in _PROMPTS if prompt.needs <= tools.keys()], params)
        return types.ListPromptsResult(prompts=found, next_cursor=cursor)

    async def get(
        self, context: Context, tools: Mapping[str, object], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """Returns a prompt with its arguments in place.

        Raises:
            MCPError: There is none of that name, an argument is wrong, or what it quotes cannot be read.
        """
        found = next((prompt for prompt in _PROMPTS if prompt.shown.name == params.name), None)
        if found is None or not found.needs <= tools.keys():
            raise MCPError(types.INVALID_PARAMS, "There is no such prompt; prompts/list names those there are.")
        arguments = _checked(found.shown, params.arguments or {})
        text = found.text(arguments)
        if found.shown.name == "recall":
            text = await self._recall(context, text)
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=found.shown.description, messages=[message])

    async def _recall(self, context: Context, question: str) -> str:
        answer = await self._caller.read(context, "search.query", {"query": question})
        assert isinstance(answer, search_pb2.SearchResponse), "the answer of search.query"
        found = search_text(answer)
        blocks = [READING_RULE, *found] if found else [_RECALL_EMPTY]
        return _RECALL.format(question=question, found="\n\n".join(blocks))

    @staticmethod
    def complete(params: types.CompleteRequestParams) -> types.Completion | None:
        """Returns nothing for an argument of a prompt, which is anybody's text; None for another reference."""
        names = {prompt.shown.name for prompt in _PROMPTS}
        if not isinstance(params.ref, types.PromptReference) or params.ref.name not in names:
            return None
        return types.Completion(values=[], total=0, has_more=False)


def _checked(prompt: types.Prompt, arguments: Mapping[str, str]) -> Mapping[str, str]:
    known = {argument.name: argument for argument in prompt.arguments or []}
    for name, value in arguments.items():
        if name not in known:
            raise MCPError(types.INVALID_PARAMS, f"The prompt {prompt.name} has no argument of that name.")
        if len(value) > _MAX_ARGUMENT_CHARS:
            raise MCPError(types.INVALID_PARAMS, f"{name}: must be at most {_MAX_ARGUMENT_CHARS} characters.")
    for name, argument in known.items():
        if argument.required and not arguments.get(name, "").strip():
            raise MCPError(types.INVALID_PARAMS, f"{name}: is required.")
    return arguments
