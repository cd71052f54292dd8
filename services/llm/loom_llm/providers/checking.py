"""Lets nothing of a provider's answer pass that is not what it should be: the SDKs check no types and no bounds."""

from dataclasses import replace
from typing import Final

from loom_common.providers import FailureKind, ProviderError
from loom_llm.domain.characters import Halves, whole
from loom_llm.domain.messages import Delta, LLMResult, ToolCall, ToolCallFragment, unnamed_call

MAX_ANSWER_CHARS: Final = 2_000_000
"""Longest answer. Source: the longest that may be asked for is 131,072 tokens, of 4 characters on average and rarely
above 12; in UTF-8 it goes into one message of gRPC."""

# Source: chosen. Counts must go into 32 bits, those of an attempt and of the one before it together.
_MOST_TOKENS: Final = 1_000_000_000
# Source: the contract takes no more calls of one turn.
_MOST_CALLS: Final = 128
# Source: as long as the usage of a call may name its model.
_LONGEST_MODEL: Final = 128

_TEXT: Final = "text"


def checked(result: LLMResult) -> LLMResult:
    """Returns `result` as it may be sent on, where its text is text and its counts are counts.

    Raises:
        ProviderError: They are not.
    """
    counts = (
        result.input_tokens,
        result.output_tokens,
        result.cached_input_tokens,
        result.cache_write_tokens,
        result.reasoning_tokens,
    )
    counted = all(type(count) is int and 0 <= count <= _MOST_TOKENS for count in counts)
    texts = [result.text, result.model]
    for call in result.tool_calls:
        texts += [call.id, call.name, call.arguments]
    if not (counted and len(result.tool_calls) <= _MOST_CALLS and all(isinstance(text, str) for text in texts)):
        raise _malformed(result.provider)
    # A call to a tool without a name can be made by nobody.
    if sum(map(len, texts)) > MAX_ANSWER_CHARS or not all(call.name for call in result.tool_calls):
        raise _malformed(result.provider)
    return replace(
        result,
        text=whole(result.text),
        model=whole(result.model[:_LONGEST_MODEL]),
        tool_calls=tuple(
            ToolCall(whole(call.id), whole(call.name), whole(call.arguments)) for call in result.tool_calls
        ),
    )


class StreamCheck:
    """Checks the pieces of one stream, in order."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._halves = Halves()
        self._calls: set[int] = set()

    def checked(self, delta: Delta) -> Delta:
        """Returns the piece as it may be sent on.

        Raises:
            ProviderError: It is not what it should be.
        """
        if not isinstance(delta.text, str):
            raise _malformed(self._provider)
        text = self._halves.joined(_TEXT, delta.text)
        if delta.result is not None:
            text += self._halves.left(_TEXT)
        return replace(delta, text=text, tool_calls=tuple(self._fragment(piece) for piece in delta.tool_calls))

    def _fragment(self, piece: ToolCallFragment) -> ToolCallFragment:
        named = all(isinstance(text, str) for text in (piece.id, piece.name, piece.arguments))
        if not (named and type(piece.index) is int and 0 <= piece.index < _MOST_CALLS):
            raise _malformed(self._provider)
        identifier = piece.id
        if piece.index not in self._calls:
            self._calls.add(piece.index)
            identifier = identifier or unnamed_call(piece.index)
        arguments = self._halves.joined(piece.index, piece.arguments)
        return ToolCallFragment(piece.index, whole(identifier), whole(piece.name), arguments)


def _malformed(provider: str) -> ProviderError:
    return ProviderError(provider, FailureKind.MALFORMED)
