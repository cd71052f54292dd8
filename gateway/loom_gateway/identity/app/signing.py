"""The keys that sign tokens: sealed in the database, made at the first start, shared by every replica."""

from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from loom_common.auth.tokens import SigningKey, jwks
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.conditional_writes import claim_name
from loom_common.sealing import SealBroken, Sealer
from loom_common.settings import SettingsError
from loom_gateway.identity.store.signing_keys import SigningKeyRepository, StoredKey

SEAL_PURPOSE: Final = "identity.signing_keys"
TOKEN_KEYS: Final = "token"  # noqa: S105 - a kind of key
"""Kind of the keys that sign callers' tokens."""

# Longer than the hold of a gateway that died while it made the key. Source: the default hold of 30 s.
_WAIT_S: Final = 40.0


class SigningKeys:
    """The signing keys of this deployment; replicas that start together end up with the same one."""

    def __init__(self, keys: SigningKeyRepository, sealer: Sealer, writes: ConditionalWrites, clock: Clock) -> None:
        self._repository = keys
        self._sealer = sealer
        self._writes = writes
        self._clock = clock
        self._opened: dict[str, SigningKey] = {}
        self._public: dict[str, Ed25519PublicKey] = {}
        self._active: SigningKey | None = None
        self._jwks = jwks(())

    async def open(self) -> None:
        """Reads the keys, and makes the first one where there is none.

        Raises:
            SettingsError: The secret does not open a key.
            Conflict: Another replica is making the key and does not come to an end; start again.
        """
        await self.refresh()
        if self._active is None:
            async with self._writes.hold(claim_name("signing_key", TOKEN_KEYS), wait_s=_WAIT_S) as hold:
                await self.refresh()  # another replica may have made it meanwhile
                if self._active is None:
                    await self._make(hold.version_after(0))
                    await hold.confirm()
                    await self.refresh()

    async def refresh(self) -> bool:
        """Reads the keys again; returns whether the public ones changed.

        Raises:
            SettingsError: The secret does not open a key.
        """
        stored = await self._repository.of_kind(TOKEN_KEYS)
        opened = {key.kid: self._opened.get(key.kid) or self._open_one(key) for key in stored}
        active = [key for key in stored if key.retired_at is None]
        # The newest signs. A retired key signs no more, and verifies what it signed until that has expired.
        self._active = opened[active[-1].kid] if active else None
        before, self._jwks = self._jwks, jwks(key.public_jwk() for key in opened.values())
        self._opened = opened
        # Objects are kept: verifiers remember a good token together with the key object that verified it.
        self._public = {kid: self._public.get(kid) or key.private.public_key() for kid, key in opened.items()}
        return self._jwks != before

    @property
    def active(self) -> SigningKey:
        """The key that signs new tokens; keys are open."""
        assert self._active is not None, "open() makes a key or raises"
        return self._active

    @property
    def jwks(self) -> str:
        """The public keys as a JWKS document."""
        return self._jwks

    def public(self, kid: str) -> Ed25519PublicKey | None:
        """Returns the public key of that name, or None where there is none."""
        return self._public.get(kid)

    async def _make(self, version: int) -> None:
        key = SigningKey.generate()
        sealed = self._sealer.seal(key.to_jwk().encode(), name=key.kid)
        await self._repository.add(StoredKey(key.kid, TOKEN_KEYS, sealed, self._clock.now(), None), version)

    def _open_one(self, stored: StoredKey) -> SigningKey:
        try:
            return SigningKey.from_jwk(self._sealer.open(stored.sealed_private, name=stored.kid).decode())
        except SealBroken:
            raise SettingsError(
                "LOOM_JWT_SECRET does not open the signing keys in this database: set the secret that they were sealed "
                "with, or give that one as LOOM_JWT_SECRET_PREVIOUS."
            ) from None
