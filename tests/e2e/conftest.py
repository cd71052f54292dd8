"""One whole Loom for all tests of this folder that only call it."""

from collections.abc import Iterator

import httpx
import pytest
from support.leaks import shown_secrets
from support.otlp import collector
from support.up import UpProcess, environment, loom_up


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    """A running Loom; tests keep apart by namespace, user or key.

    Whatever they did, no log line, metric or span shows a secret, here or in what a collector is sent.
    """
    with collector() as collected:
        env = environment(LOOM_OTLP_ENDPOINT=collected.endpoint)
        with loom_up(tmp_path_factory.mktemp("up") / "data", env=env) as running:
            yield running
            assert shown_secrets(httpx.get(f"{running.http_url}/metrics", trust_env=False).text, running.data_dir) == []
        assert shown_secrets(running.log.read_text(), running.data_dir) == []
        assert {path.split(".")[3] for path in collected.sent} >= {"trace", "metrics", "logs"}
        assert shown_secrets(collected.text(), running.data_dir) == []
