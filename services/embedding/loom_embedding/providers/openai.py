"""OpenAI, and servers that speak its embeddings, through the official SDK."""

import re
from collections.abc import Sequence
from json import JSONDecodeError
from typing import Final

import openai
import structlog
from openai.types import CreateEmbeddingResponse

from loom_common.model_calls.client import as_themselves
from loom_common.providers import FailureKind, ProviderError, retry_after_s
from loom_common.providers.http import ProviderHttp
from loom_embedding.domain.embedder import OPENAI
from loom_embedding.providers.api import Answer, Refused, one_row_each, sendable, status_failure

NO_KEY: Final = "none"
"""Sent as the key to a compatible server where none is set: the SDK insists on one."""

_WIDTH: Final = "dimensions"
# How servers that name no field say that they cannot make vectors of the width that was asked for.
_WIDTH_WORDS: Final = re.compile(
    r"(?:does not|doesn't) support (?:specifying |setting |the )?[`'\"]?(?:dimensions|matryoshka)"
    r"|only supports [^.]{1,200} matryoshka dimensions"
    r"|[`'\"]?dimensions[`'\"]? (?:parameter )?is (?:currently )?not supported"
    r"|(?:unknown|unrecognized|unsupported|unexpected)(?: \w+){1,3}:? [`'\"]?dimensions[`'\"]?(?=[.,;]|\s*$)"
)

_log = structlog.get_logger(__name__)


class OpenAIApi:
    """Embeds through `embeddings`.

    Args:
        model: Name of the model.
        dim: Width to ask for; None for the model's own.
        api_key: Its key.
        base_url: Root of the API. Given always: the SDK would else take it from the environment.
        timeout_s: Longest silence of the provider.
        connect_timeout_s: Time to connect.
        http_client: Client to send with; None for one of its own. It is closed with this.
    """

    provider = OPENAI

    def __init__(
        self,
        model: str,
        dim: int | None,
        api_key: str,
        *,
        base_url: str,
        timeout_s: float,
        connect_timeout_s: float,
        http_client: ProviderHttp | None = None,
    ) -> None:
        self._model = model
        self._dim = dim
        client = http_client or ProviderHttp(timeout_s=timeout_s, connect_timeout_s=connect_timeout_s)
        self._sdk = openai.AsyncOpenAI(
            api_key=api_key, base_url=base_url, max_retries=0, timeout=client.timeout, http_client=client
        )
        # `OPENAI_CUSTOM_HEADERS`, `OPENAI_ORG_ID` and `OPENAI_PROJECT_ID` would put headers into every request, over
        # the key's too. No argument stops it.
        self._sdk._custom_headers = {}
        self._sdk.organization = self._sdk.project = None

    async def embed(self, texts: Sequence[str]) -> Answer:
        """See `EmbeddingApi.embed`.

        A server that cannot be asked for a width is not asked again; whether its own is the right one, every answer
        shows.
        """
        return await self._embed(texts, self._dim)

    async def aclose(self) -> None:
        """See `EmbeddingApi.aclose`."""
        await self._sdk.close()

    async def _embed(self, texts: Sequence[str], asked: int | None) -> Answer:
        try:
            answer = await self._create(texts, asked)
        except openai.APIStatusError as error:
            failure = status_failure(OPENAI, error.status_code, _words(error), retry_after_s(error.response.headers))
            if asked is None or not (isinstance(failure, Refused) and _is_about_width(error, texts)):
                # The SDK's errors quote the provider, which quotes keys and texts: none is kept as a cause.
                raise failure from None
        else:
            return _read(answer, texts)
        found = await self._embed(texts, None)
        # Not before it answered: a refusal may quote a text that speaks of dimensions.
        if self._dim is not None:
            _log.warning("width_not_taken", model=self._model, dim=asked)
            self._dim = None
        return found

    async def _create(self, texts: Sequence[str], dim: int | None) -> object:
        try:
            with as_themselves():
                return await self._sdk.embeddings.create(
                    model=self._model, input=sendable(texts), dimensions=openai.omit if dim is None else dim
                )
        except openai.APIStatusError:
            raise
        except openai.APITimeoutError:
            raise ProviderError(OPENAI, FailureKind.TIMEOUT) from None
        except openai.APIConnectionError:
            raise ProviderError(OPENAI, FailureKind.CONNECTION) from None
        # No JSON, or none of an object, or nested without end.
        except (openai.OpenAIError, JSONDecodeError, AttributeError, RecursionError):
            raise ProviderError(OPENAI, FailureKind.MALFORMED) from None
        # An empty list, or a row that is neither numbers nor their bytes, or holds a number that is none of a float's.
        except (ValueError, TypeError, OverflowError):
            raise Refused(OPENAI, FailureKind.MALFORMED) from None


def _read(answer: object, texts: Sequence[str]) -> Answer:
    # The SDK checks no types: an answer may be text, and any field anything.
    if not isinstance(answer, CreateEmbeddingResponse):
        raise ProviderError(OPENAI, FailureKind.MALFORMED)
    try:
        ordered = sorted(answer.data, key=lambda one: one.index)
        rows = [one.embedding for one in ordered]
        tokens = answer.usage.prompt_tokens if answer.usage is not None else 0
        in_order = [one.index for one in ordered] == list(range(len(rows)))
    except (AttributeError, TypeError):
        raise ProviderError(OPENAI, FailureKind.MALFORMED) from None
    if not in_order or not isinstance(tokens, int) or tokens < 0:
        raise ProviderError(OPENAI, FailureKind.MALFORMED)
    return one_row_each(OPENAI, rows, texts, tokens)


def _is_about_width(error: openai.APIStatusError, texts: Sequence[str]) -> bool:
    """Returns whether a server refused the width: by the field that it names, else by what it says itself.

    Its words may quote a text, which may say the same: such words count for nothing.
    """
    body = error.body
    if error.param:
        return error.param.rsplit(".", 1)[-1] == _WIDTH
    if isinstance(error.code, str) and "dimension" in error.code.lower():
        return True
    if isinstance(body, dict) and (fields := _fields(body.get("detail"))):
        return _WIDTH in fields
    said = _WIDTH_WORDS.search(_message(body).lower())
    return said is not None and not any(said[0] in text.lower() for text in texts)


def _fields(detail: object) -> set[object]:
    """Returns the fields that a server's validation of the request names, as FastAPI tells them."""
    if not isinstance(detail, list):
        return set()
    places = [one.get("loc") for one in detail if isinstance(one, dict)]
    return {place[-1] for place in places if isinstance(place, list) and place and isinstance(place[-1], str)}


def _message(body: object) -> str:
    if isinstance(body, dict):
        body = body.get("message") or body.get("detail")
    return body if isinstance(body, str) else ""


def _words(error: openai.APIStatusError) -> str:
    return f"{error.message} {error.body}"
