"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="Directory that Loom keeps its data in. Default: LOOM_DATA_DIR, else ~/.local/share/loom."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Namespace = Annotated[str | None, typer.Option(help="Namespace to use. Default: the token's first.")]
User = Annotated[str | None, typer.Option(help="User that the memory is filed under.")]
Session = Annotated[str | None, typer.Option(help="Session that the memory is filed under.")]


def overrides(data_dir: Path | None) -> dict[str, str]:
    """Returns what the command line sets, by variable name."""
    return {} if data_dir is None else {"LOOM_DATA_DIR": str(data_dir)}


def directory(data_dir: Path | None) -> Path:
    """Returns the data directory that the command line, else the environment, else the default names."""
    from loom_common.settings import CommonSettings  # here: settings take longer to load than `loom --help` may

    return CommonSettings.load(overrides(data_dir)).data_dir.resolve()
