"""What `loom up` makes once in a data directory: the secret that seals, and a key per service."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from loom_cli.console import CommandError
from loom_common.auth.service_credentials import KEYRING_FILE, OPERATOR, generate_service_keys
from loom_common.files import write_whole

SERVICES: Final = ("gateway", "embedding", "llm", "memory", "insights", "assistant")
_SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Secrets:
    """Where the secrets of a data directory lie."""

    jwt_secret: str = field(repr=False)
    """Secret that seals rows: held by the gateway, insights and assistant, by no other."""
    keys: Path
    """Directory with a private key per service and the keyring of all public ones."""

    @property
    def keyring(self) -> Path:
        """File with every service's public key."""
        return self.keys / KEYRING_FILE

    def key_of(self, service: str) -> Path:
        """Returns the file with a service's private key."""
        return self.keys / f"{service}.jwk"


def ensure(data_dir: Path) -> Secrets:
    """Returns the secrets of a data directory, made where they are missing.

    Raises:
        CommandError: They cannot be read or written.
    """
    try:
        secret = _secret(data_dir / "secret")
        keys = data_dir / "keys"
        if (
            not all((keys / f"{name}.jwk").exists() for name in (*SERVICES, OPERATOR))
            or not (keys / KEYRING_FILE).exists()
        ):
            generate_service_keys(keys, [*SERVICES, OPERATOR])
    except OSError as error:
        raise CommandError(f"the secrets in {data_dir} cannot be used: {error.strerror or error}") from error
    except ValueError as error:
        raise CommandError(f"the keys in {data_dir / 'keys'} cannot be read; restore them from a backup") from error
    return Secrets(secret, keys)


def _secret(path: Path) -> str:
    try:
        found = path.read_text("utf-8").strip()
    except FileNotFoundError:
        found = secrets.token_urlsafe(_SECRET_BYTES)
        # It seals rows from now on: a crash must leave neither an empty one nor none.
        write_whole(path, f"{found}\n")
    if len(found) < _SECRET_BYTES:
        raise CommandError(f"{path} holds no secret; restore it from a backup, or move the data directory away")
    return found
