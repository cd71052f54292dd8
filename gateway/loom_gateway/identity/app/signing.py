"""The keys that sign tokens: sealed in the database, made at the first start, replaced in time, shared by replicas."""

from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from loom_common.auth.tokens import SigningKey, jwks
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.conditional_writes import Hold, claim_name
from loom_common.resealing import SealedKind
from loom_common.sealing import SealBroken, Sealer
from loom_common.settings import SettingsError
from loom_gateway.identity.domain.signing import TAKES_OVER_AFTER, signing_key, verifying_keys
from loom_gateway.identity.store.signing_keys import SigningKeyRepository, StoredKey

SEAL_PURPOSE: Final = "identity.signing_keys"
TOKEN_KEYS: Final = "token"  # noqa: S105 - a kind of key
"""Kind of the keys that sign callers' tokens."""

ROOT_KID: Final = "root"
"""Name of the row that says which secret is the deployment's: it holds nothing but a known text, sealed."""
_ROOT_KIND: Final = "root"
_ROOT_TEXT: Final = b"loom"
_THROWN_AWAY: Final = "token-thrown-away"

# Longer than the hold of a gateway that died while it made the key. Source: the default hold of 30 s.
_WAIT_S: Final = 40.0


class SigningKeys:
    """The signing keys of this deployment; replicas that start together end up with the same one."""

    def __init__(
        self,
        keys: SigningKeyRepository,
        sealer: Sealer,
        writes: ConditionalWrites,
        clock: Clock,
        *,
        replaced_after: timedelta | None = None,
    ) -> None:
        """Builds the keys; `open` reads them.

        Args:
            keys: Their table.
            sealer: Seals them.
            writes: Lets one replica at a time make one.
            clock: Time.
            replaced_after: Age from which on a key is replaced; None for never.
        """
        self._repository = keys
        self._sealer = sealer
        self._writes = writes
        self._clock = clock
        self._replaced_after = replaced_after
        self._stored: list[StoredKey] = []
        self._opened: dict[str, SigningKey] = {}
        self._public: dict[str, Ed25519PublicKey] = {}
        self._jwks = jwks(())

    async def open(self) -> None:
        """Reads the keys, and makes the first one where there is none.

        Raises:
            SettingsError: The secret does not open a key.
            Conflict: Another replica is making the key and does not come to an end; start again.
        """
        await self.refresh()
        root = await self._repository.of_kind(_ROOT_KIND)
        for record in root:
            self._open_sealed(record)
        if not self._stored or not root:
            async with self._hold() as hold:
                await self.refresh()  # another replica may have made it meanwhile
                if not self._stored:
                    await self._make(hold.version_after(0))
                if not await self._repository.of_kind(_ROOT_KIND):
                    sealed = self._sealer.seal(_ROOT_TEXT, name=ROOT_KID)
                    record = StoredKey(ROOT_KID, _ROOT_KIND, sealed, self._clock.now(), None)
                    await self._repository.add(record, hold.version_after(0))
                await hold.confirm()
                await self.refresh()

    async def refresh(self) -> bool:
        """Reads the keys again; returns whether the public ones changed.

        Raises:
            SettingsError: The secret does not open a key.
        """
        now = self._clock.now()
        stored = verifying_keys(await self._repository.of_kind(TOKEN_KEYS), now)
        opened = {key.kid: self._opened.get(key.kid) or self._open_one(key) for key in stored}
        before, self._jwks = self._jwks, jwks(key.public_jwk() for key in opened.values())
        self._stored, self._opened = stored, opened
        # Objects are kept: verifiers remember a good token together with the key object that verified it.
        self._public = {kid: self._public.get(kid) or key.private.public_key() for kid, key in opened.items()}
        return self._jwks != before

    async def replace_old(self) -> None:
        """Makes a new key where the newest is older than keys may become.

        Raises:
            LoomError: The database cannot be read or written; the next turn tries again.
        """
        if self._replaced_after is not None and self._newest_is_older(self._replaced_after):
            async with self._hold() as hold:
                await self.refresh()
                if self._newest_is_older(self._replaced_after):
                    await self._make(hold.version_after(0))
                    await hold.confirm()
            await self.refresh()

    async def rotate(self, *, throw_away_older: bool) -> tuple[str, datetime]:
        """Makes a new key; returns its name and when it begins to sign.

        Args:
            throw_away_older: Whether older keys verify no more, which ends every token that they signed.

        Raises:
            Conflict: Another replica is making one.
        """
        async with self._hold() as hold:
            older = await self._repository.of_kind(TOKEN_KEYS)
            made = await self._make(hold.version_after(0))
            # The new one first: a crash between the two leaves keys that sign.
            for key in older if throw_away_older else []:
                gone = StoredKey(key.kid, _THROWN_AWAY, "", key.created_at, self._clock.now())
                await self._repository.add(gone, hold.version_after(await self._repository.version(key.kid)))
            await hold.confirm()
        await self.refresh()
        active = self.active
        return made.kid, made.created_at if active.kid == made.kid else made.created_at + TAKES_OVER_AFTER

    @property
    def active(self) -> SigningKey:
        """The key that signs new tokens; keys are open."""
        key = signing_key(self._stored, self._clock.now())
        assert key is not None, "open() makes a key or raises"
        return self._opened[key.kid]

    @property
    def jwks(self) -> str:
        """The public keys as a JWKS document."""
        return self._jwks

    def sealed_kind(self) -> SealedKind:
        """Returns the keys and the record that proves the secret, as what is sealed anew with it."""
        return SealedKind("signing_keys", self._repository, self._sealer, self._hold)

    def public(self, kid: str) -> Ed25519PublicKey | None:
        """Returns the public key of that name, or None where there is none."""
        return self._public.get(kid)

    async def _make(self, version: int) -> StoredKey:
        key = SigningKey.generate()
        sealed = self._sealer.seal(key.to_jwk().encode(), name=key.kid)
        stored = StoredKey(key.kid, TOKEN_KEYS, sealed, self._clock.now(), None)
        await self._repository.add(stored, version)
        return stored

    def _newest_is_older(self, age: timedelta) -> bool:
        return bool(self._stored) and self._stored[-1].created_at + age <= self._clock.now()

    def _hold(self) -> AbstractAsyncContextManager[Hold]:
        return self._writes.hold(claim_name("signing_key", TOKEN_KEYS), wait_s=_WAIT_S)

    def _open_one(self, stored: StoredKey) -> SigningKey:
        return SigningKey.from_jwk(self._open_sealed(stored).decode())

    def _open_sealed(self, stored: StoredKey) -> bytes:
        try:
            return self._sealer.open(stored.sealed_private, name=stored.kid)
        except SealBroken:
            raise SettingsError(
                "LOOM_JWT_SECRET does not open the signing keys in this database: set the secret that they were sealed "
                "with, or give that one as LOOM_JWT_SECRET_PREVIOUS."
            ) from None
