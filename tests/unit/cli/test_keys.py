"""The secrets of a data directory."""

from pathlib import Path

import pytest

from loom_cli import keys
from loom_cli.console import CommandError


def test_secrets_are_made_once_and_shown_by_no_repr(tmp_path: Path) -> None:
    made = keys.ensure(tmp_path)
    assert keys.ensure(tmp_path) == made
    assert made.jwt_secret not in repr(made)


def test_a_key_that_cannot_be_read_is_told_in_one_line(tmp_path: Path) -> None:
    keys.ensure(tmp_path)
    (tmp_path / "keys" / "memory.jwk").write_text("{}")
    (tmp_path / "keys" / "services.jwks").unlink()
    with pytest.raises(CommandError, match="keys"):
        keys.ensure(tmp_path)
