"""What a provider's failure means: whether the same request may succeed later, or another model may take it."""

from typing import Final

from loom_common.providers import FailureKind, ProviderError

RETRYABLE_STATUSES: Final = frozenset({429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed."""

REJECTED_STATUSES: Final = frozenset({400, 413, 422})
"""Statuses that refuse the request and not the caller: another model may take it."""


def hands_over(error: ProviderError) -> bool:
    """Returns whether a fallback model is asked after this failure.

    A wrong key or name (401, 403, 404) is a fault of the deployment: it must be seen and not be papered over.
    """
    if error.kind is FailureKind.STATUS:
        return error.status in RETRYABLE_STATUSES | REJECTED_STATUSES
    return error.kind is not FailureKind.MALFORMED
