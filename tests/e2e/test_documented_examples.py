"""The examples of the user's guide do what they say, one for each operation."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from support.up import UpProcess, run_loom

from loom_gateway.contract.catalogue import Catalogue

USER_GUIDE: Final = Path(__file__).parents[2] / "docs" / "user"
EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    op: json.loads(body)
    for op, body in re.findall(
        r"^### `([a-z_.]+)`$.*?```json\n(.*?)```",
        (USER_GUIDE / "examples.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
}
# Need what a page cannot hold: a workload's token, the number of a conflict or an erasure, a model, a signing key.
WITHOUT: Final = {
    *("assistant.ask", "knowledge.synthesize", "code.calibrate", "calibration.get"),
    *("memory.resolve_conflict", "erasure.status", "token.exchange", "token.revoke"),
    *("org.create", "org.update", "org.list", "org.list_accounts", "org.set_account", "org.set_model_calls"),
    *("org.list_trusts", "org.set_trust", "org.remove_trust"),
}


def made_token(up: UpProcess, *options: str) -> str:
    made = run_loom("token", "create", "--role", "admin", "--org-admin", *options, "--json", "--data-dir", up.data_dir)
    assert made.returncode == 0, made.stderr
    return str(json.loads(made.stdout)["token"])


@pytest.fixture(scope="module")
def token(up: UpProcess) -> str:
    """An administrator's token for a new namespace."""
    up.call("namespace.create", {"name": "examples"}, token=made_token(up))
    return made_token(up, "--namespace", "examples", "--namespace", "default")


def test_every_example_is_answered_in_the_order_of_the_page(up: UpProcess, token: str) -> None:
    failed = {}
    for op, body in EXAMPLES.items():
        answer = up.post(op, body, token=token)
        if answer.status_code != 200:
            failed[op] = answer.text
    assert failed == {}


def test_every_operation_has_an_example_or_is_named_in_the_guide() -> None:
    nouns = {op.partition(".")[0] for op in EXAMPLES}
    guide = "\n".join(page.read_text("utf-8") for page in USER_GUIDE.glob("*.md"))
    missing = {op for op in Catalogue() if op not in EXAMPLES | dict.fromkeys(WITHOUT)}
    assert {op for op in missing if op.partition(".")[0] in nouns} == set()
    assert {op for op in missing if f"`{op}`" not in guide and f"/v1/{op}" not in guide} == set()
