"""Remembers whether the provider answered its last call."""

from loom_llm.domain.failures import ProviderError


class ProviderHealth:
    """How the provider fares, from what calls saw. A call that its caller gave up says nothing about it."""

    def __init__(self) -> None:
        self._failure: ProviderError | None = None

    @property
    def failure(self) -> ProviderError | None:
        """How the last call failed; None where it did not."""
        return self._failure

    def answered(self) -> None:
        """Notes that the provider answered."""
        self._failure = None

    def failed(self, error: ProviderError) -> None:
        """Notes that the provider failed, after all attempts."""
        self._failure = error
