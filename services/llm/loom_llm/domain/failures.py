"""What went wrong at a provider, without a word of the provider's own: it may quote a key or a prompt."""

from enum import StrEnum
from typing import Final

RETRYABLE_STATUSES: Final = frozenset({429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed."""


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

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed when it is sent again."""
        if self.kind is FailureKind.STATUS:
            return self.status in RETRYABLE_STATUSES
        return self.kind is not FailureKind.MALFORMED
