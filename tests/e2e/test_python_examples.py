"""The examples of the pages on Python, run against a running Loom as they stand there."""

import re
from pathlib import Path

import pytest
from support.up import UpProcess

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["docs/user/python.md", "sdk/python/README.md"])
def test_the_examples_of_a_page_run_in_their_order(
    up: UpProcess, page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOOM_BASE_URL", up.http_url)
    monkeypatch.setenv("LOOM_API_KEY", up.token)
    examples = EXAMPLE.findall((ROOT / page).read_text("utf-8"))
    assert examples
    told = []
    for number, example in enumerate(examples):
        # An example that says how to reach a Loom elsewhere is run against this one.
        source = example.replace('"http://127.0.0.1:8080"', repr(up.http_url))
        exec(compile(source, f"{page}#{number}", "exec"), {"__name__": page})
        told.append(capsys.readouterr().out)
    assert all(told[:1]), told
    if page.startswith("docs"):
        shown = "".join(told)
        assert "somebody else wrote it: 1" in shown
        assert "FAILED: disk full" in shown
        assert "Tea" in shown
