"""What the embedding service says of itself."""

from collections.abc import Callable, Iterator

from loom_common.providers import ProviderHealth
from loom_common.status import Problem, Severity, StatusReport
from loom_embedding.domain.embedder import ServedModel
from loom_embedding.domain.selection import Selection


class EmbeddingStatus:
    """Tells which model is served and how its provider fares.

    Args:
        selection: What was chosen.
        served: The model.
        health: How calls to its provider end.
        seen_dim: Returns the width that the provider answers; None before it has.
        wanted_dim: Width that the settings expect; None where they expect none.
        require_real: Whether a fake counts as an error.
    """

    def __init__(
        self,
        selection: Selection,
        served: ServedModel,
        health: ProviderHealth,
        seen_dim: Callable[[], int | None],
        *,
        wanted_dim: int | None,
        require_real: bool,
    ) -> None:
        self._selection = selection
        self._served = served
        self._health = health
        self._seen_dim = seen_dim
        self._wanted_dim = wanted_dim
        self._fake_severity: Severity = "error" if require_real else "warning"

    async def report(self) -> StatusReport:
        """See `StatusSource.report`. A provider that fails leaves the service ready: the next call may succeed."""
        served = self._served
        facts = {"model": served.name, "dim": str(served.dim), "provider": served.provider}
        if self._selection.key_missing:
            facts["wanted_model"] = self._selection.wanted_model
        return StatusReport(ready=True, problems=tuple(self._problems()), facts=facts)

    def _problems(self) -> Iterator[Problem]:
        served, selection = self._served, self._selection
        if selection.key_missing:
            yield Problem(
                "embedder_key_missing",
                f"The embedder is {selection.wanted_model} of {selection.wanted_provider}, and the fake stands in: "
                f"{selection.key_variables} is not set. Set it, or unset LOOM_EMBEDDING_MODEL for the local model.",
                self._fake_severity,
            )
        if served.fake:
            yield Problem(
                "fake_embedder",
                f"The embedder is the fake {served.name}: search by meaning does not work. "
                "Unset LOOM_EMBEDDING_PROVIDER and LOOM_EMBEDDING_MODEL for the local model.",
                self._fake_severity,
            )
        if self._wanted_dim is not None and self._wanted_dim != served.dim:
            yield _mismatch(self._wanted_dim, served, served.dim)
        seen = self._seen_dim()
        if seen is not None and seen != served.dim:
            yield _mismatch(served.dim, served, seen)
        yield from self._health.problems()


def _mismatch(wanted: int, served: ServedModel, real: int) -> Problem:
    return Problem(
        "embedding_dim_mismatch",
        f"Vectors of width {wanted} are expected and {served.name} makes vectors of width {real}. Unset "
        "LOOM_EMBEDDING_DIM, or set it to the model's width.",
        "error",
    )
