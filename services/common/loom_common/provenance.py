"""Who wrote a row, as its `actor` says: a principal, or one of Loom's own pipelines."""

from typing import Final

PIPELINE_ACTORS: Final = ("process:memory", "process:extraction-worker", "process:conflict-resolver", "process:cli:*")
"""Actors that are no principals. One that ends in `:*` stands for all that begin like it."""

_PRINCIPALS: Final = ("human:", "process:")


def principal_of(actor: str) -> str:
    """Returns the subject of the principal that an actor stands for; empty for a pipeline's own, which is none.

    Args:
        actor: `human:` or `process:` and the subject of the token that wrote the row.
    """
    if any(_stands_for(pipeline, actor) for pipeline in PIPELINE_ACTORS):
        return ""
    return next((actor.removeprefix(kind) for kind in _PRINCIPALS if actor.startswith(kind)), "")


def _stands_for(pipeline: str, actor: str) -> bool:
    return actor.startswith(pipeline[:-1]) if pipeline.endswith(":*") else actor == pipeline
