"""What must never be shown: the secrets of a data directory, and anything that is a signed token."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# The head of every JWT is a JSON object, `{"` in base64; callers' tokens and service credentials alike.
_TOKEN: Final = re.compile(r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}")


def secrets_of(data_dir: Path) -> dict[str, str]:
    """Returns the secrets that lie in a data directory, by what they are."""
    found = {"secret": (data_dir / "secret").read_text().strip(), **private_keys(data_dir / "keys")}
    password = data_dir / "keys" / "engine-password"
    if password.exists():
        found["password of the engine"] = password.read_text().strip()
    return found


def private_keys(folder: Path) -> dict[str, str]:
    """Returns the private parts of the keys in a folder, by what they are."""
    return {f"private key of {path.stem}": str(json.loads(path.read_text())["d"]) for path in folder.glob("*.jwk")}


def shown_secrets(text: str, data_dir: Path, *, but: Iterable[str] = ()) -> list[str]:
    """Returns what of the secrets a text shows, without showing it again.

    Args:
        text: Text to look at.
        data_dir: Data directory whose secrets are looked for.
        but: Tokens that the text is there to show.
    """
    found = [name for name, secret in secrets_of(data_dir).items() if secret in text]
    return found + shown_tokens(text, but=but)


def shown_tokens(text: str, *, but: Iterable[str] = ()) -> list[str]:
    """Returns the lines of a text that show a token, without it.

    Args:
        text: Text to look at.
        but: Tokens that the text is there to show.
    """
    tokens = set(_TOKEN.findall(text)) - set(but)
    lines = [line for line in text.splitlines() if any(token in line for token in tokens)]
    return [f"a token in: {_TOKEN.sub('<token>', line)[:500]}" for line in lines]
