"""Lays the files of local models out once, so that the first start need not: `python -m loom_embedding.setup_models`.

Without arguments it prepares every model whose files installed packages carry, inside this Python environment, and does
nothing where they are there already. `--download` fetches another model through fastembed; it alone uses the network.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from loom_embedding.domain.models import LOCAL_ALIASES, LOCAL_MODELS
from loom_embedding.providers.download import download_model
from loom_embedding.providers.model_files import ModelFilesMissing, ensure_model, shared_models_dir


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepares the models that are asked for; returns the exit code."""
    asked = _parser().parse_args(arguments)
    names = [LOCAL_ALIASES.get(name, name) for name in asked.models]
    if unknown := [name for name in names if name not in LOCAL_MODELS]:
        print(f"{unknown[0]} is no local model. Known: {', '.join(LOCAL_MODELS)}.", file=sys.stderr)  # noqa: T201
        return 2
    models = [LOCAL_MODELS[name] for name in names] or [model for model in LOCAL_MODELS.values() if model.packaged]
    for model in models:
        try:
            if asked.download and not model.packaged:
                # Without a network it is tried again and again, for the better part of a minute.
                print(f"{model.id}: fetching; this takes a minute or more ...", file=sys.stderr)  # noqa: T201
                folder = download_model(model, asked.into)
            else:
                folder = ensure_model(model, asked.into)
        except ModelFilesMissing as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 1
        print(f"{model.id}: {folder}")  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loom_embedding.setup_models", description=__doc__)
    parser.add_argument("models", nargs="*", help="models to prepare; default: all that installed packages carry")
    parser.add_argument("--into", type=Path, default=shared_models_dir(), help="directory of models (%(default)s)")
    parser.add_argument("--download", action="store_true", help="fetch models that no package carries")
    return parser


if __name__ == "__main__":
    sys.exit(main())
