"""What is said to a model and what it says back, in no provider's words; each provider translates it to its own."""

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, TypedDict

DEFAULT_MAX_TOKENS: Final = 1024

Role: TypeAlias = Literal["user", "assistant", "tool"]
StopReason: TypeAlias = Literal["stop", "length", "tool_calls", "refusal"]


class ResponseFormat(TypedDict):
    """Shape that an answer must have."""

    type: Literal["text", "json_object"]
    """`json_object`: the answer is one JSON object and nothing else."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call to a tool that a model asks for."""

    id: str
    """Names the call, so that its result can."""
    name: str
    """Tool to call."""
    arguments: str
    """Arguments as the model wrote them: a JSON object, if it kept to that."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. The instructions are no turn: they stand in `ChatRequest.system`."""

    role: Role
    """`tool` is the result of a call."""
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls that an `assistant` asked for."""
    tool_call_id: str = ""
    """Call whose result a `tool` tells."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool that a model may ask to be called."""

    name: str
    description: str
    parameters: str
    """JSON schema of the arguments, as JSON text."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools a model may or must ask for."""

    mode: Literal["auto", "none", "required", "tool"] = "auto"
    """`required`: some tool; `tool`: the one that `name` names."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One question to a model: instructions, the conversation so far, and the tools that it may ask for."""

    messages: tuple[Message, ...]
    """At least one."""
    system: str = ""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    max_tokens: int = DEFAULT_MAX_TOKENS
    """Most tokens of the answer, the model's hidden reasoning not counted."""
    response_format: ResponseFormat | None = None

    @property
    def wants_json(self) -> bool:
        """Whether the answer must be one JSON object."""
        return self.response_format is not None and self.response_format["type"] == "json_object"

    @classmethod
    def of_prompt(
        cls,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> "ChatRequest":
        """Returns the request of one prompt."""
        return cls((Message("user", user),), system, max_tokens=max_tokens, response_format=response_format)


@dataclass(frozen=True, slots=True)
class LLMResult:
    """One answer and what it cost."""

    text: str
    provider: str
    """Provider that answered."""
    model: str
    """Model that answered; it may name itself more exactly than it was asked for."""
    input_tokens: int = 0
    """Tokens of the prompt, those read from or written to the provider's cache included."""
    output_tokens: int = 0
    """Tokens of the answer, hidden reasoning included."""
    cached_input_tokens: int = 0
    """Tokens of the prompt that the provider read from its cache."""
    cache_write_tokens: int = 0
    """Tokens of the prompt that the provider wrote to its cache."""
    from_cache: bool = False
    """Whether Loom's own cache answered and no provider was called."""
    stop_reason: StopReason = "stop"
    """Why the answer ended: `length` where it reached its cap, `refusal` where the model would not answer."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls to tools that the model asks for, in its order."""
    reasoning_tokens: int = 0
    """Tokens of hidden reasoning among `output_tokens`, where the provider tells them."""
    fell_back: bool = False
    """Whether the fallback model answered in place of the one that was asked."""
    response_id: str = ""
    """The provider's identifier of the answer, where it gives one."""


@dataclass(frozen=True, slots=True)
class ToolCallFragment:
    """A piece of one call to a tool; pieces of the same `index` are put together in order."""

    index: int
    """Which of the answer's calls, from 0."""
    id: str = ""
    """Whole, in the first piece."""
    name: str = ""
    """Whole, in the first piece."""
    arguments: str = ""
    """Next characters of the arguments."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of a streamed answer. The last one carries `result`, and only the last."""

    text: str = ""
    tool_calls: tuple[ToolCallFragment, ...] = ()
    input_tokens: int = 0
    """Tokens of the prompt, where the provider tells them before the end."""
    result: LLMResult | None = None
    """The whole answer and what it cost."""

    @property
    def visible(self) -> bool:
        """Whether the caller sees something new in it, so that it cannot be taken back."""
        return bool(self.text or self.tool_calls)


class Assembly:
    """Puts the pieces of a streamed answer together."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: dict[int, list[ToolCallFragment]] = {}
        self.input_tokens = 0
        """Tokens of the prompt, as far as the provider told them."""

    def add(self, delta: Delta) -> None:
        """Takes the next piece."""
        if delta.text:
            self._texts.append(delta.text)
        for fragment in delta.tool_calls:
            self._calls.setdefault(fragment.index, []).append(fragment)
        self.input_tokens = max(self.input_tokens, delta.input_tokens)

    @property
    def begun(self) -> bool:
        """Whether anything came."""
        return bool(self._texts or self._calls or self.input_tokens)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls so far, in the model's order; one without arguments has an empty object of them."""
        return tuple(
            ToolCall(
                next((piece.id for piece in pieces if piece.id), unnamed_call(index)),
                next((piece.name for piece in pieces if piece.name), ""),
                "".join(piece.arguments for piece in pieces) or "{}",
            )
            for index, pieces in sorted(self._calls.items())
        )


def unnamed_call(index: int) -> str:
    """Returns the name of a call whose provider gave it none, as some servers do: its result must name one."""
    return f"call_{index}"
