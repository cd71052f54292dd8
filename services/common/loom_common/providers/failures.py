"""What went wrong at a provider, without a word of the provider's own: it may quote a key or a prompt."""

from enum import StrEnum
from typing import Final

from loom_common.errors import ProviderFailed


class FailureKind(StrEnum):
    """How a call to a provider failed."""

    STATUS = "status"
    """It answered an HTTP error."""
    TIMEOUT = "timeout"
    """It was silent for too long."""
    CONNECTION = "connection"
    """It could not be reached, or broke off."""
    MALFORMED = "malformed"
    """It answered something that cannot be read."""


_WORDS: Final = {
    FailureKind.STATUS: "answered HTTP {status}",
    FailureKind.TIMEOUT: "did not answer in time",
    FailureKind.CONNECTION: "could not be reached",
    FailureKind.MALFORMED: "answered something that cannot be read",
}


class ProviderError(Exception):
    """A call to a provider failed. Raised by clients, answered to callers as PROVIDER_FAILED.

    Attributes:
        provider: Name of the provider.
        kind: How it failed.
        status: HTTP status, for `FailureKind.STATUS`.
        retry_after_s: Time that the provider asked to wait, in seconds, where it did.
        attempts: How often it was tried.
    """

    def __init__(
        self, provider: str, kind: FailureKind, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{provider}: {kind.value}{'' if status is None else f' {status}'}")
        self.provider = provider
        self.kind = kind
        self.status = status
        self.retry_after_s = retry_after_s
        self.attempts = 1


def provider_failed(error: ProviderError) -> ProviderFailed:
    """Returns the error for callers: what happened, in our words."""
    tries = "" if error.attempts == 1 else f" in {error.attempts} attempts"
    happened = _WORDS[error.kind].format(status=error.status)
    detail: dict[str, str | int] = {
        "provider": error.provider,
        "kind": error.kind.value,
        "attempts": error.attempts,
    }
    if error.status is not None:
        detail["status"] = error.status
    return ProviderFailed(
        f"The model provider {error.provider} {happened}{tries}.",
        detail={**detail},
        retry_after_s=error.retry_after_s,
    )
