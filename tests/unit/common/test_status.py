"""What a service says of its workers."""

import asyncio

from loom_common.status import FixedStatus, Problem, StatusReport, WorkerStatus
from loom_common.workers import Workers


async def test_a_service_that_lost_a_worker_is_not_ready_and_names_it() -> None:
    inner = FixedStatus(StatusReport(ready=True, problems=(Problem("fake_embedder", "It is."),), facts={"a": "b"}))
    workers = Workers()
    status = WorkerStatus(inner, "embedding", lambda: workers.ended)

    async def broken() -> None:
        raise RuntimeError("a defect")

    async def whole() -> None:
        """Ends because there is no more to do."""

    await asyncio.wait([workers.start("whole", whole())])
    assert await status.report() == inner.current
    await asyncio.wait([workers.start("calibration", broken())])
    report = await status.report()
    assert not report.ready
    assert report.facts == {"a": "b"}
    assert [(found.code, found.severity) for found in report.problems] == [
        ("fake_embedder", "warning"),
        ("worker_ended", "error"),
    ]
    assert "'calibration'" in report.problems[1].message
    await workers.close()
