"""Whom calls are for that no request makes: a job's, by the row it works on, and the deployment's own."""

from collections.abc import Iterator
from contextlib import contextmanager

from loom_common.attribution import Attribution, Kind
from loom_common.call import Call, bind, current
from loom_common.features import Feature


@contextmanager
def for_org(
    org: str, feature: Feature | str, *, namespace: str = "", subject: str = "", user_id: str = "", run_id: str = ""
) -> Iterator[Call]:
    """Makes the calls of the block a job's, for an organisation, whatever ran before.

    A worker's own identity never counts, nor does what the row before had: each group of rows is a block of its own.

    Args:
        org: Organisation of the rows.
        feature: The worker.
        namespace: Namespace of the rows; empty for rows of several.
        subject: Principal that wrote the row, from `loom_common.provenance.principal_of`; empty where it names none.
        user_id: User that the row is filed under.
        run_id: Run that it belongs to.
    """
    attribution = Attribution(
        org=org,
        namespace=namespace,
        subject=subject,
        user_id=user_id,
        feature=str(feature),
        kind=Kind.JOB,
        run_id=run_id,
    )
    with for_attribution(attribution) as running:
        yield running


@contextmanager
def for_attribution(attribution: Attribution) -> Iterator[Call]:
    """Makes the calls of the block those of `attribution`, such as a group of rows that one call may hold."""
    around = current()
    made = Call(op=attribution.feature, attribution=attribution, transport="worker", deadline=around.deadline)
    # What is spent in the block is spent by whoever runs it.
    made.usage, made.request_id = around.usage, around.request_id
    with bind(made) as running:
        yield running


@contextmanager
def system(feature: Feature | str) -> Iterator[Call]:
    """Makes the calls of the block the deployment's own: for no organisation, and on no one's behalf."""
    with for_attribution(Attribution(org="", feature=str(feature), kind=Kind.SYSTEM)) as running:
        yield running
