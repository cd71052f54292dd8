"""What calls to providers of models have in common: how they fail, when they are tried again, how providers fare."""

from loom_common.providers.failures import FailureKind, ProviderError, provider_failed
from loom_common.providers.health import ProviderHealth
from loom_common.providers.retry_after import retry_after_s
from loom_common.providers.retrying import BACKOFF_BASE_S, Retrying, RetryPolicy, Sleep

__all__ = [
    "BACKOFF_BASE_S",
    "FailureKind",
    "ProviderError",
    "ProviderHealth",
    "RetryPolicy",
    "Retrying",
    "Sleep",
    "provider_failed",
    "retry_after_s",
]
