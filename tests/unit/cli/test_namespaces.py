"""What `loom namespace` sends of a policy."""

from pathlib import Path

import pytest

from loom_cli.console import CommandError
from loom_cli.namespaces import _policy


def test_a_policy_is_read_from_the_option_or_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"secrets": "block", "blocked_words": ["falcon"]}')
    for text in (file.read_text(), f"@{file}"):
        policy = _policy(text)
        assert policy is not None
        assert (policy.secrets, list(policy.blocked_words)) == ("block", ["falcon"])
    assert _policy(None) is None


@pytest.mark.parametrize("text", ["", "{", '{"nonsense": 1}', '{"secrets": 1}', "@/does/not/exist"])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(CommandError):
        _policy(text)
