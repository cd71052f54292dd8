"""How the whole fares, from how each dependency does."""

from typing import Any

import pytest

from loom_gateway.http.health import Check, HealthReport


@pytest.mark.parametrize(("severity", "status"), [("warning", "ok"), ("error", "degraded")])
def test_a_problem_that_is_an_error_degrades_the_whole_and_a_warning_does_not(severity: str, status: str) -> None:
    problem = {"code": "fake_embedder", "service": "embedding", "severity": severity, "message": "m"}
    embedding = Check(ok=True, required=False, problems=(problem,))  # type: ignore[arg-type]  # a JSON object is invariant
    report = HealthReport("0.1.0", {"clickhouse": Check(ok=True, required=True), "embedding": embedding})
    assert report.to_json()["status"] == status
    assert report.ready


def test_the_thresholds_in_force_are_a_section_of_their_own() -> None:
    facts = {"model": "m", "adaptive_thresholds.source": "cluster", "adaptive_thresholds.calibration_hash": "abc"}
    checks = {"clickhouse": Check(ok=True, required=True), "embedding": Check(ok=True, required=False, facts=facts)}
    shown = HealthReport("0.1.0", checks).to_json()["adaptive_thresholds"]
    assert shown == {"source": "cluster", "calibration_hash": "abc"}
    assert HealthReport("0.1.0", {"clickhouse": checks["clickhouse"]}).to_json()["adaptive_thresholds"] == {}


def test_a_service_that_is_not_ready_is_named_once_with_its_own_reason_or_for_not_having_one() -> None:
    ended = {"code": "worker_ended", "service": "memory", "severity": "error", "message": "m"}
    checks = {
        "clickhouse": Check(ok=True, required=True),
        "identity": Check(ok=True, required=True),
        "memory": Check(ok=False, required=False, problems=(ended,)),  # type: ignore[arg-type]  # as above
        "llm": Check(ok=False, required=False),
        "insights": Check(ok=False, required=False, fault="BACKEND_UNAVAILABLE"),
    }
    report = HealthReport("0.1.0", checks)
    assert report.ready
    problems: Any = report.to_json()["problems"]
    assert [(found["service"], found["code"]) for found in problems] == [
        ("memory", "worker_ended"),
        ("llm", "llm_not_ready"),
        ("insights", "insights_unavailable"),
    ]
