"""Remembers whether a provider answered its last call, and says so to operators."""

from loom_common.providers.failures import ProviderError
from loom_common.status import Problem


class ProviderHealth:
    """How a provider fares, from what calls saw. A call that its caller gave up says nothing about it."""

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

    def problems(self) -> list[Problem]:
        """Returns what an operator should know; nothing where the last call went well."""
        failure = self._failure
        if failure is None:
            return []
        return [
            Problem(
                f"provider_failing:{failure.provider}",
                f"The last call to {failure.provider} failed ({failure.kind.value}"
                f"{'' if failure.status is None else f' {failure.status}'}). Check its key, its address and its "
                "own status page.",
            )
        ]
