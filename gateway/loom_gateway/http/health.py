"""What the gateway says of itself and of the services behind it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import grpc.aio
from pydantic import JsonValue

from loom.common.v1 import status_pb2, status_pb2_grpc
from loom_common.errors import LoomError, Reason

CLICKHOUSE: Final = "clickhouse"
IDENTITY: Final = "identity"
REQUIRED: Final = frozenset({CLICKHOUSE, IDENTITY})
"""Without these the gateway answers nothing; the services' own operations fail one by one."""

_ASK_TIMEOUT_S: Final = 2.0
# Anyone may ask, so many askers share one answer.
_KEPT_S: Final = 1.0
_SEVERITIES: Final = {
    status_pb2.Problem.SEVERITY_WARNING: "warning",
    status_pb2.Problem.SEVERITY_ERROR: "error",
}

Probe = Callable[[], Awaitable[object]]
"""Returns where a dependency answers and raises where it does not."""


@dataclass(frozen=True, slots=True)
class Check:
    """How one dependency fares."""

    ok: bool
    required: bool
    version: str = ""
    problems: tuple[dict[str, JsonValue], ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    """Reason of the error that it was asked with; empty where it answered."""

    @property
    def has_errors(self) -> bool:
        """Whether it tells of a problem that keeps it from its whole work."""
        return any(problem["severity"] == "error" for problem in self.problems)


@dataclass(frozen=True, slots=True)
class HealthReport:
    """How the whole fares."""

    version: str
    checks: Mapping[str, Check]

    @property
    def database_ok(self) -> bool:
        """Whether the gateway's own probe of the database succeeded."""
        return self.checks[CLICKHOUSE].ok

    @property
    def ready(self) -> bool:
        """Whether everything answers that the gateway cannot do without."""
        return all(check.ok for check in self.checks.values() if check.required)

    def to_json(self) -> dict[str, JsonValue]:
        """Returns the report as the API shows it."""
        degraded = any(not check.ok or check.has_errors for check in self.checks.values())
        status = "down" if not self.database_ok else "degraded" if degraded else "ok"
        return {
            "status": status,
            "ready": self.ready,
            "version": self.version,
            "embedder": self._model("embedding", "fake_embedder"),
            "llm": self._model("llm", "fake_llm"),
            "adaptive_thresholds": self._section("embedding", "adaptive_thresholds."),
            "analysis": self._section("insights", "analysis."),
            "checks": {name: _shown(check) for name, check in self.checks.items()},
            "problems": [problem for name, check in self.checks.items() for problem in _problems(name, check)],
        }

    def _model(self, service: str, fake_code: str) -> JsonValue:
        check = self.checks.get(service)
        if check is None or check.fault:
            return {"known": False, "real": False, "model": ""}
        fake = any(problem["code"] == fake_code for problem in check.problems)
        return {"known": True, "real": not fake, "model": check.facts.get("model", "")}

    def _section(self, service: str, prefix: str) -> JsonValue:
        """Returns the facts of a service whose names begin alike; empty while it does not answer."""
        check = self.checks.get(service)
        facts = {} if check is None else check.facts
        return {name.removeprefix(prefix): value for name, value in facts.items() if name.startswith(prefix)}


class HealthReader:
    """Asks the database and every service how they fare.

    Args:
        version: Version of this build.
        clickhouse: Probe of the database.
        channels: Channels of the services, by name; identity among them.
    """

    def __init__(self, version: str, clickhouse: Probe, channels: Mapping[str, grpc.aio.Channel]) -> None:
        self._version = version
        self._clickhouse = clickhouse
        self._stubs = {name: status_pb2_grpc.StatusServiceStub(channel) for name, channel in channels.items()}
        self._held: tuple[float, HealthReport] | None = None
        self._asking: asyncio.Task[HealthReport] | None = None

    async def report(self) -> HealthReport:
        """Returns how everything fares, at most a second old."""
        if self._held is not None and time.monotonic() - self._held[0] < _KEPT_S:
            return self._held[1]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_all(), name="health")
        # Others wait for the same answer: one that goes away must not take it from them.
        return await asyncio.shield(self._asking)

    async def _ask_all(self) -> HealthReport:
        names = [CLICKHOUSE, *self._stubs]
        found = await asyncio.gather(self._ask_database(), *(self._ask(name) for name in self._stubs))
        report = HealthReport(self._version, dict(zip(names, found, strict=True)))
        self._held = (time.monotonic(), report)
        return report

    async def _ask_database(self) -> Check:
        try:
            async with asyncio.timeout(_ASK_TIMEOUT_S):
                await self._clickhouse()
        except (LoomError, TimeoutError, OSError) as error:
            return Check(ok=False, required=True, fault=_fault(error))
        return Check(ok=True, required=True)

    async def _ask(self, name: str) -> Check:
        required = name in REQUIRED
        try:
            answer = await self._stubs[name].GetStatus(status_pb2.GetStatusRequest(), timeout=_ASK_TIMEOUT_S)
        except LoomError as error:
            return Check(ok=False, required=required, fault=_fault(error))
        except grpc.aio.AioRpcError:
            return Check(ok=False, required=required, fault=Reason.BACKEND_UNAVAILABLE.value)
        problems = tuple(_problem(name, problem) for problem in answer.problems)
        return Check(answer.ready, required, answer.version, problems, dict(answer.facts))


def _fault(error: BaseException) -> str:
    return error.reason.value if isinstance(error, LoomError) else Reason.BACKEND_UNAVAILABLE.value


def _problem(service: str, problem: status_pb2.Problem) -> dict[str, JsonValue]:
    severity = _SEVERITIES.get(problem.severity, "warning")
    return {"code": problem.code, "service": service, "severity": severity, "message": problem.message}


def _problems(name: str, check: Check) -> list[JsonValue]:
    found: list[JsonValue] = list(check.problems)
    if check.fault:
        found.append(
            {
                "code": f"{name}_unavailable",
                "service": name,
                "severity": "error",
                "message": f"{name} does not answer ({check.fault}). See whether it runs and what its log says.",
            }
        )
    elif not check.ok and not check.has_errors:
        found.append(
            {
                "code": f"{name}_not_ready",
                "service": name,
                "severity": "error",
                "message": f"{name} answers and is not ready. While it starts this passes; else see its log.",
            }
        )
    return found


def _shown(check: Check) -> JsonValue:
    shown: dict[str, JsonValue] = {"ok": check.ok, "required": check.required}
    if check.version:
        shown["version"] = check.version
    return shown
