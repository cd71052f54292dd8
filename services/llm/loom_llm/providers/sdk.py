"""What the providers' official SDKs have in common: how they are opened, and how they fail.

Both are made by the same generator, so that their errors differ in name only.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

import httpx2

from loom_common.model_calls.client import as_themselves
from loom_common.providers import FailureKind, ProviderError, retry_after_s
from loom_common.providers.http import ProviderHttp
from loom_llm.domain.traits import Refusal

CONNECT_TIMEOUT_S: Final = 5.0

# What a provider does not take it says at the begin; what follows may quote the whole request. Source: chosen; below
# the 4,300 digits from which on `int` refuses a number.
_REFUSAL_CHARS: Final = 4096

# Statuses of the errors that providers send inside of a stream, where HTTP has said 200 already.
_STREAMED_STATUS: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "overloaded_error": 529,
}
_STREAMED_OTHER: Final = 500


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a provider is, and how it is reached."""

    api_key: str = field(repr=False)
    base_url: str
    """Root of the API. Given always: the SDKs would else take it from the environment."""
    timeout_s: float
    """Longest silence of the provider."""
    http_client: httpx2.AsyncClient | None = None
    """Client to send with, such as one that adds headers; None for one of its own."""

    def opened(self) -> httpx2.AsyncClient:
        """Returns the client to send with; the SDK that gets it closes it."""
        if self.http_client is not None:
            return self.http_client
        return ProviderHttp(timeout_s=self.timeout_s, connect_timeout_s=CONNECT_TIMEOUT_S)


class RefusedShape(ProviderError):
    """A provider refused a request as it was sent, and said why."""

    def __init__(self, provider: str, status: int, refusal: Refusal, after_s: float | None) -> None:
        super().__init__(provider, FailureKind.STATUS, status=status, retry_after_s=after_s)
        self.refusal = refusal

    def plain(self) -> ProviderError:
        """Returns the failure without the provider's words, which may quote keys and prompts."""
        return ProviderError(self.provider, FailureKind.STATUS, status=self.status, retry_after_s=self.retry_after_s)


class ApiStatusError(Protocol):
    """An HTTP error as both SDKs raise it."""

    message: str
    body: object
    status_code: int
    response: httpx2.Response


@dataclass(frozen=True, slots=True)
class SdkErrors:
    """Names of one SDK's errors."""

    provider: str
    status: type[Exception]
    """An `ApiStatusError`."""
    timeout: type[Exception]
    connection: type[Exception]
    root: type[Exception]
    """What all of them are."""

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raises what goes wrong inside of it as a `ProviderError`.

        The SDK's errors quote the provider, which quotes keys and prompts: none is kept as a cause. Errors of our own
        that were raised while a request was sent come out as they are.
        """
        try:
            with as_themselves():
                yield
        except self.status as error:
            raise self._of_status(error) from None  # type: ignore[arg-type]  # every SDK's status error is one
        except (self.timeout, httpx2.TimeoutException):
            raise ProviderError(self.provider, FailureKind.TIMEOUT) from None
        except (self.connection, httpx2.RequestError):  # an answer that was broken off among them
            raise ProviderError(self.provider, FailureKind.CONNECTION) from None
        except self.root as error:
            if (streamed := _inner(getattr(error, "body", None))) is not None:
                raise ProviderError(self.provider, FailureKind.STATUS, status=_streamed_status(streamed)) from None
            raise ProviderError(self.provider, FailureKind.MALFORMED) from None
        # JSON that is none or without end, and fields that are missing or of another kind: the SDKs check nothing.
        except (ValueError, AttributeError, IndexError, KeyError, TypeError, RecursionError):
            raise ProviderError(self.provider, FailureKind.MALFORMED) from None

    def _of_status(self, error: ApiStatusError) -> ProviderError:
        after_s = retry_after_s(error.response.headers)
        said = _inner(error.body)
        status = error.status_code
        if status == 200:
            status = _streamed_status(said or {})
        if status != 400:
            return ProviderError(self.provider, FailureKind.STATUS, status=status, retry_after_s=after_s)
        message, named = (said or {}).get("message"), (said or {}).get("param")
        words = message if isinstance(message, str) else error.message
        refusal = Refusal(words[:_REFUSAL_CHARS], named if isinstance(named, str) else None)
        return RefusedShape(self.provider, status, refusal, after_s)


def _inner(body: object) -> Mapping[str, object] | None:
    """Returns the error inside of a body: one SDK hands over the whole, the other what `error` holds."""
    if not isinstance(body, dict):
        return None
    inner = body.get("error")
    return inner if isinstance(inner, dict) else body


def _streamed_status(said: Mapping[str, object]) -> int:
    words = [word for word in (said.get("type"), said.get("code")) if isinstance(word, str)]
    return next((_STREAMED_STATUS[word] for word in words if word in _STREAMED_STATUS), _STREAMED_OTHER)
