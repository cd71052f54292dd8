"""What each service of a start is given."""

import pytest

from loom_cli.plan import inherited


@pytest.mark.parametrize(
    ("service", "holds"), [("gateway", True), ("assistant", True), ("memory", False), ("engine", False)]
)
def test_an_inherited_secret_reaches_only_those_who_seal(
    monkeypatch: pytest.MonkeyPatch, service: str, holds: bool
) -> None:
    monkeypatch.setenv("LOOM_JWT_SECRET_PREVIOUS", "s" * 40)
    monkeypatch.setenv("LOOM_LOG_LEVEL", "debug")
    environment = inherited(service)
    assert ("LOOM_JWT_SECRET_PREVIOUS" in environment) is holds
    assert environment["LOOM_LOG_LEVEL"] == "debug"
