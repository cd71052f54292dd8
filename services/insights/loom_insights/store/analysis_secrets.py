"""The table `analysis_secrets`: the one row that holds the analyst's key and password, sealed."""

import base64
import json
import secrets
import string
from collections.abc import Sequence
from typing import Final

from loom_common.clickhouse import ClickHouse, own_write_reads
from loom_common.resealing import SealedRow
from loom_common.sealing import SealBroken, Sealer
from loom_insights.domain.server_entities import ServerSecrets

PURPOSE: Final = "insights.analysis_secrets"
_NAME: Final = "analyst"
_KEY_BYTES: Final = 32
_PASSWORD_CHARACTERS: Final = 40
_SYMBOLS: Final = "-_.~+="

_READ: Final = """SELECT sealed, version FROM analysis_secrets FINAL
WHERE name = {name:String} AND sealed != '' ORDER BY name LIMIT 1"""
_PUT: Final = """INSERT INTO analysis_secrets (name, sealed, stored_at, version)
SELECT {name:String}, {sealed:String}, now64(3, 'UTC'), {version:UInt64}"""
# The time stays: it is what tells how long a rotation has been settling.
_RESEAL: Final = """INSERT INTO analysis_secrets (name, sealed, stored_at, version)
SELECT name, {sealed:String}, stored_at, {after:UInt64} FROM analysis_secrets FINAL
WHERE name = {name:String} AND sealed != '' AND version = {version:UInt64}"""


class SecretsLost(Exception):
    """The row is not there although an analyst is, or it does not open."""


class AnalysisSecretRepository:
    """Owns the `analysis_secrets` table; no other class names it."""

    def __init__(self, ch: ClickHouse, sealer: Sealer) -> None:
        self._ch = ch
        self._sealer = sealer

    async def read(self) -> ServerSecrets | None:
        """Returns the key and the password, or None where none were drawn; writes of other replicas are seen.

        Raises:
            SecretsLost: They were sealed under another secret.
        """
        rows = await self.sealed_rows()
        if not rows:
            return None
        try:
            held = json.loads(self._sealer.open(rows[0].sealed, name=_NAME))
        except SealBroken:
            raise SecretsLost("the analysis key does not open under LOOM_JWT_SECRET") from None
        return ServerSecrets(base64.b64decode(held["key"]), held["password"])

    async def draw(self) -> ServerSecrets:
        """Draws a key and a password and stores them."""
        drawn = ServerSecrets(secrets.token_bytes(_KEY_BYTES), _password())
        value = json.dumps({"key": base64.b64encode(drawn.key).decode(), "password": drawn.password})
        sealed = self._sealer.seal(value.encode(), name=_NAME)
        await self._ch.command(_PUT, {"name": _NAME, "sealed": sealed, "version": 1})
        return drawn

    async def sealed_rows(self) -> Sequence[SealedRow]:
        """See `SealedTable.sealed_rows`."""
        rows = await self._ch.query(_READ, {"name": _NAME}, settings=own_write_reads(self._ch))
        return [SealedRow(_NAME, str(sealed), int(version)) for sealed, version in rows]

    async def put_resealed(self, row: SealedRow, sealed: str) -> bool:
        """See `SealedTable.put_resealed`."""
        parameters = {"name": row.name, "version": row.version, "sealed": sealed, "after": row.version + 1}
        await self._ch.command(_RESEAL, parameters, settings=own_write_reads(self._ch))
        return any(found.sealed == sealed for found in await self.sealed_rows())


def _password() -> str:
    """Returns a password with a lower and an upper case letter, a digit and a symbol, as ClickHouse Cloud wants it."""
    kinds = (string.ascii_lowercase, string.ascii_uppercase, string.digits, _SYMBOLS)
    drawn = [secrets.choice(kind) for kind in kinds]
    drawn += [secrets.choice("".join(kinds)) for _ in range(_PASSWORD_CHARACTERS - len(drawn))]
    secrets.SystemRandom().shuffle(drawn)
    return "".join(drawn)
