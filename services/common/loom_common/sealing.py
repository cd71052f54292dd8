"""Secrets at rest: rows that hold one are sealed under the deployment's secret before they reach the database."""

import base64
import secrets
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import SecretStr

MIN_SECRET_CHARS: Final = 32
"""Shortest secret that is taken. HKDF does not slow a guess down, so the secret itself must not be guessable."""

_VERSION: Final = "v1"
_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32


class SealBroken(Exception):
    """None of the secrets opens the sealed value, or it was made for another purpose or name."""


class Sealer:
    """Seals and opens values with AES-256-GCM under a key derived from the deployment's secret.

    Each purpose has a key of its own, and each value is bound to the name of its row, so that a sealed value that is
    moved to another row or table does not open there.
    """

    def __init__(self, secret: SecretStr, previous: SecretStr | None = None, *, purpose: str) -> None:
        """Derives the keys.

        Args:
            secret: Seals and opens.
            previous: Opens what was sealed before a rotation; None outside of one.
            purpose: What the values are, such as `identity.signing_keys`.

        Raises:
            ValueError: A secret is shorter than `MIN_SECRET_CHARS`.
        """
        self._current = _cipher(secret, purpose)
        self._previous = _cipher(previous, purpose) if previous is not None else None

    def seal(self, value: bytes, *, name: str) -> str:
        """Returns the value sealed for the row `name`."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._current.encrypt(nonce, value, name.encode())
        return f"{_VERSION}.{base64.urlsafe_b64encode(nonce + sealed).decode()}"

    def is_current(self, sealed: str, *, name: str) -> bool:
        """Returns whether the current secret opens a value that was sealed for the row `name`."""
        try:
            _opened((self._current,), sealed, name)
        except SealBroken:
            return False
        return True

    def open(self, sealed: str, *, name: str) -> bytes:
        """Returns the value that was sealed for the row `name`.

        Raises:
            SealBroken: It does not open.
        """
        return _opened((self._current, self._previous), sealed, name)


def _opened(ciphers: Sequence[AESGCM | None], sealed: str, name: str) -> bytes:
    version, _, packed = sealed.partition(".")
    try:
        raw = base64.urlsafe_b64decode(packed)
    except ValueError:
        raise SealBroken from None
    if version != _VERSION or len(raw) <= _NONCE_BYTES:
        raise SealBroken
    for cipher in ciphers:
        if cipher is None:
            continue
        try:
            return cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], name.encode())
        except InvalidTag:
            continue
    raise SealBroken


def _cipher(secret: SecretStr, purpose: str) -> AESGCM:
    text = secret.get_secret_value()
    if len(text) < MIN_SECRET_CHARS:
        raise ValueError(f"the secret is shorter than {MIN_SECRET_CHARS} characters")
    derived = HKDF(SHA256(), _KEY_BYTES, salt=None, info=f"loom/{_VERSION}/{purpose}".encode())
    return AESGCM(derived.derive(text.encode()))
