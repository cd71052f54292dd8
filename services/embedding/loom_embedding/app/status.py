"""What the embedding service says of itself."""

from loom_common.status import Problem, Severity, StatusReport
from loom_embedding.domain.embedder import ServedModel


def status_of(served: ServedModel, *, wanted_dim: int | None, require_real: bool) -> StatusReport:
    """Returns how the service fares; it does not change while the process lives.

    Args:
        served: The model.
        wanted_dim: Width that the settings expect; None where they expect none.
        require_real: Whether a fake counts as an error.
    """
    problems = []
    if served.fake:
        severity: Severity = "error" if require_real else "warning"
        problems.append(
            Problem(
                "fake_embedder",
                f"The embedder is the fake {served.name}: search by meaning does not work. "
                "Unset LOOM_EMBEDDING_PROVIDER and LOOM_EMBEDDING_MODEL for the local model.",
                severity,
            )
        )
    if wanted_dim is not None and wanted_dim != served.dim:
        problems.append(
            Problem(
                "embedding_dim_mismatch",
                f"LOOM_EMBEDDING_DIM is {wanted_dim} and {served.name} makes vectors of width {served.dim}. "
                "Unset it, or set it to the model's width.",
                "error",
            )
        )
    facts = {"model": served.name, "dim": str(served.dim), "provider": served.provider}
    return StatusReport(ready=True, problems=tuple(problems), facts=facts)
