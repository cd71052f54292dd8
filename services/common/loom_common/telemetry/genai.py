"""One span for every call to a model, with the names of OpenTelemetry's conventions for generative AI.

A span says which model was asked for what kind of work, how it ended and what it took; never a word of a prompt or of
an answer. Beside the conventions' names it carries `loom.prompt.*`: which prompt of ours was sent, in which version.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from opentelemetry import trace
from opentelemetry.util.types import AttributeValue

from loom_common.providers import FailureKind, ProviderError

# The conventions are not stable yet, so their names are kept here and not imported from a module that will move.
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_STREAM: Final = "gen_ai.request.stream"
OUTPUT_TYPE: Final = "gen_ai.output.type"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
ERROR_TYPE: Final = "error.type"

PROMPT_NAME: Final = "loom.prompt.name"
PROMPT_VERSION: Final = "loom.prompt.version"
PROMPT_HASH: Final = "loom.prompt.hash"

# Names that the conventions give to providers whom Loom calls otherwise.
_PROVIDERS: Final = {"gemini": "gcp.gemini"}

_LONGEST_NAME: Final = 256


class Operation(StrEnum):
    """What a model is asked for, in the words of the conventions."""

    CHAT = "chat"
    TEXT_COMPLETION = "text_completion"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    """The conventions have no word for it yet."""
    CLASSIFY = "classify"
    """The conventions have no word for it yet."""


@dataclass(frozen=True, slots=True)
class PromptRef:
    """Which prompt a call sends."""

    name: str
    """`<family>.<name>`."""
    version: str = ""
    hash: str = ""
    """Digest of its text; empty where the sender does not know it."""


_PROMPT: ContextVar[PromptRef | None] = ContextVar("loom_prompt", default=None)


@contextmanager
def prompted(prompt: PromptRef | None) -> Iterator[None]:
    """Says which prompt the model calls of the block send; None says nothing of it."""
    token = _PROMPT.set(prompt)
    try:
        yield
    finally:
        _PROMPT.reset(token)


class ModelSpan:
    """The span of one call to a model, while it runs."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._started_s = time.monotonic()
        self._first_seen = False

    def first_token(self) -> None:
        """Notes that the answer begins; what follows the first time counts for nothing."""
        if not self._first_seen:
            self._first_seen = True
            self._span.set_attribute(RESPONSE_TIME_TO_FIRST_CHUNK, time.monotonic() - self._started_s)

    def answered(
        self,
        *,
        model: str = "",
        input_tokens: int = 0,
        output_tokens: int = 0,
        cached_tokens: int = 0,
        cache_write_tokens: int = 0,
        finish_reasons: Sequence[str] = (),
        response_id: str = "",
    ) -> None:
        """Notes how the model answered; zeros and empty values are left out.

        Args:
            model: Model that answered, as it names itself.
            input_tokens: Tokens of the prompt, those read from or written to the provider's cache included.
            output_tokens: Tokens of the answer.
            cached_tokens: Tokens of the prompt that the provider read from its cache.
            cache_write_tokens: Tokens of the prompt that the provider wrote to its cache.
            finish_reasons: Why the answer ends, one for each answer.
            response_id: The provider's identifier of the answer.
        """
        found: dict[str, AttributeValue] = {
            RESPONSE_MODEL: model[:_LONGEST_NAME],
            USAGE_INPUT_TOKENS: input_tokens,
            USAGE_OUTPUT_TOKENS: output_tokens,
            USAGE_CACHE_READ_TOKENS: cached_tokens,
            USAGE_CACHE_WRITE_TOKENS: cache_write_tokens,
            RESPONSE_FINISH_REASONS: [reason[:_LONGEST_NAME] for reason in finish_reasons if reason],
            RESPONSE_ID: response_id[:_LONGEST_NAME],
        }
        self._span.set_attributes({name: value for name, value in found.items() if value})


@contextmanager
def model_call(
    operation: Operation,
    provider: str,
    model: str,
    *,
    max_tokens: int | None = None,
    temperature: float | None = None,
    json: bool = False,
    stream: bool = False,
    tracer: trace.Tracer | None = None,
) -> Iterator[ModelSpan]:
    """Opens the span of one request to a provider; an exception that leaves the block is its error.

    The span is nobody's parent: a block may be left in another context than it was entered in, as the body of an
    asynchronous generator is that its caller gave up.

    Args:
        operation: What is asked for.
        provider: Loom's name of the provider.
        model: Model that is asked.
        max_tokens: Most tokens of the answer.
        temperature: Temperature that is sent.
        json: Whether the answer must be JSON.
        stream: Whether it comes piece by piece.
        tracer: Default: the process's own.
    """
    tracer = tracer or trace.get_tracer("loom_common")
    span = tracer.start_span(
        f"{operation.value} {model[:_LONGEST_NAME]}",
        kind=trace.SpanKind.CLIENT,
        attributes=_asked(operation, provider, model, max_tokens, temperature, json=json, stream=stream),
    )
    try:
        yield ModelSpan(span)
    except BaseException as error:
        kind = _error_type(error)
        span.set_attribute(ERROR_TYPE, kind)
        # The words of an error may quote a provider, and that a prompt: its kind is all that is told.
        if not isinstance(error, GeneratorExit):
            span.set_status(trace.StatusCode.ERROR, kind)
        raise
    finally:
        span.end()


def _asked(
    operation: Operation,
    provider: str,
    model: str,
    max_tokens: int | None,
    temperature: float | None,
    *,
    json: bool,
    stream: bool,
) -> dict[str, AttributeValue]:
    asked: dict[str, AttributeValue] = {
        OPERATION_NAME: operation.value,
        PROVIDER_NAME: _PROVIDERS.get(provider, provider),
        REQUEST_MODEL: model[:_LONGEST_NAME],
    }
    if max_tokens is not None:
        asked[REQUEST_MAX_TOKENS] = max_tokens
    if temperature is not None:
        asked[REQUEST_TEMPERATURE] = temperature
    if stream:
        asked[REQUEST_STREAM] = True
    if operation in {Operation.CHAT, Operation.TEXT_COMPLETION}:
        asked[OUTPUT_TYPE] = "json" if json else "text"
    if (prompt := _PROMPT.get()) is not None:
        named = {PROMPT_NAME: prompt.name, PROMPT_VERSION: prompt.version, PROMPT_HASH: prompt.hash}
        asked.update({name: value[:_LONGEST_NAME] for name, value in named.items() if value})
    return asked


def _error_type(error: BaseException) -> str:
    """Returns what the conventions call a low-cardinality word: a status, a kind, or the name of a class."""
    if isinstance(error, ProviderError):
        return str(error.status) if error.kind is FailureKind.STATUS and error.status else error.kind.value
    return type(error).__qualname__
