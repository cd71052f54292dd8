"""What a service says of itself: whether it works, and what an operator should know."""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata, resources
from typing import Final, Literal, Protocol

import grpc.aio
import structlog

from loom.common.v1 import status_pb2, status_pb2_grpc

Severity = Literal["warning", "error"]

_REPORT_TIMEOUT_S: Final = 5.0
_SEVERITIES: Final[Mapping[Severity, status_pb2.Problem.Severity.ValueType]] = {
    "warning": status_pb2.Problem.SEVERITY_WARNING,
    "error": status_pb2.Problem.SEVERITY_ERROR,
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that an operator should know.

    Attributes:
        code: Stable code in lower snake case, such as `fake_embedder`.
        message: One sentence for people: what is wrong and what to do.
        severity: `error` where the service does not do its whole work.
    """

    code: str
    message: str
    severity: Severity = "warning"


@dataclass(frozen=True, slots=True)
class StatusReport:
    """How a service fares.

    Attributes:
        ready: Whether it answers its operations now.
        problems: What an operator should know, in any order.
        facts: Facts for people by stable keys, such as the embedding model.
    """

    ready: bool
    problems: Sequence[Problem] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


class StatusSource(Protocol):
    """Knows how a service fares."""

    async def report(self) -> StatusReport:
        """Returns how it fares now; asked every few seconds, so it costs little."""
        ...


class FixedStatus:
    """A status that does not change by itself; for services without dependencies, and for tests."""

    def __init__(self, report: StatusReport | None = None) -> None:
        self.current = report or StatusReport(ready=True)

    async def report(self) -> StatusReport:
        """See `StatusSource.report`."""
        return self.current


class WorkerStatus:
    """The report of another source; not ready once one of the service's workers has ended by a fault.

    Args:
        inner: The service's other checks.
        service: Its name, for the advice.
        ended: Names the workers that are gone.
    """

    def __init__(self, inner: StatusSource, service: str, ended: Callable[[], Sequence[str]]) -> None:
        self._inner = inner
        self._service = service
        self._ended = ended

    async def report(self) -> StatusReport:
        """See `StatusSource.report`."""
        report = await self._inner.report()
        problems = [worker_ended(name, self._service) for name in self._ended()]
        return replace(report, ready=False, problems=(*report.problems, *problems)) if problems else report


def worker_ended(name: str, service: str) -> Problem:
    """Returns the problem of a worker that is gone."""
    return Problem(
        "worker_ended", f"The worker {name!r} ended by a fault; see the log, then restart {service}.", "error"
    )


async def bounded_report(source: StatusSource) -> StatusReport:
    """Returns what the source says; one that fails or takes too long is not ready."""
    try:
        async with asyncio.timeout(_REPORT_TIMEOUT_S):
            return await source.report()
    except TimeoutError:
        problem = Problem("status_slow", "The service's own checks do not end in time; see its log.", "error")
    except Exception:  # noqa: BLE001 - whatever breaks a check, the service is not ready and says so
        _log.exception("status_failed")
        problem = Problem("status_failed", "The service's own checks fail; see its log.", "error")
    return StatusReport(ready=False, problems=(problem,))


class StatusServicer(status_pb2_grpc.StatusServiceServicer):
    """Answers `status.get`."""

    def __init__(self, service: str, source: StatusSource) -> None:
        self._service = service
        self._source = source

    async def GetStatus(
        self,
        request: status_pb2.GetStatusRequest,
        context: grpc.aio.ServicerContext[status_pb2.GetStatusRequest, status_pb2.GetStatusResponse],
    ) -> status_pb2.GetStatusResponse:
        """Translates the report."""
        report = await bounded_report(self._source)
        return status_to_proto(self._service, report)


def status_to_proto(service: str, report: StatusReport) -> status_pb2.GetStatusResponse:
    """Returns the report as a message, its most severe problems first."""
    ordered = sorted(report.problems, key=lambda problem: (-_SEVERITIES[problem.severity], problem.code))
    return status_pb2.GetStatusResponse(
        service=service,
        version=version(),
        build=build(),
        ready=report.ready,
        problems=[
            status_pb2.Problem(code=problem.code, severity=_SEVERITIES[problem.severity], message=problem.message)
            for problem in ordered
        ],
        facts=dict(report.facts),
    )


@functools.cache
def version() -> str:
    """Returns the version of this build, as in `loom --version`."""
    try:
        return metadata.version("loom-common")
    except metadata.PackageNotFoundError:
        return "0.0.0"


@functools.cache
def build() -> str:
    """Returns the revision that this build was made from; `unknown` where it was not recorded."""
    recorded = resources.files("loom_common").joinpath("BUILD")
    return recorded.read_text("utf-8").strip() if recorded.is_file() else "unknown"
